"""Tests of the families as data."""
