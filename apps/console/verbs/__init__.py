"""What operators do: each verb shows what it would do, asks why, does it, and says what it has done and how to undo it.

A verb is a class in a module of this package; `registry` finds it there. It wraps a service that writes the audit row
in the transaction of its effect, and adds nothing but what people see. `doing` holds the rules that are the same for
all: the role, the version that was looked at, the row about a refused attempt. `pages` is the one page that all share.

    @register
    class Unpark(Verb):
        name, label, level = "dueentry.unpark", "Serve again", RESPOND
        def look(self, ask: Ask) -> Preview: ...
        def do(self, ask: Ask) -> Receipt: ...

A template offers it with `{% load verbs %}{% verb_button "dueentry.unpark" entry.key %}`; a verb in a tenant needs the
tenant's slug where the page is not the tenant's: `{% verb_button "execution.cancel" id tenant=slug %}`.
"""
