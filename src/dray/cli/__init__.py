"""`drayd`, the one command. Modules are imported by the command that needs them: help is instant."""
