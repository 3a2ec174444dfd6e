"""What to draft and how much: proposers and the policies that size their windows."""
