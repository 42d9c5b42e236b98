"""Why is it not running? The answer about an execution or a schedule, from rows and by the rules that release asks."""
