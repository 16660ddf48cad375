"""`txlog doctor`: checks of an installation, a store and a checkpoint."""
