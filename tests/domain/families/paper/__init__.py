"""Plans of published models, built without a backend: they prove that the plan types suffice.

Each module turns the published config values of one family into a plan and names its tensors. They are tests' models,
not readers: nothing is checked, and the readers of these families live beside the Llama's when they come.
"""
