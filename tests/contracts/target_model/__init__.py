"""What every `TargetModel` promises, as checks that run on any of them."""
