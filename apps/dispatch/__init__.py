"""The outbound conductor: fire what is due, release what is ready, reconcile what got lost."""
