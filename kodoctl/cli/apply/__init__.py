"""Commands that change a cluster: apply, destroy, undo, unlock, forget; and history."""
