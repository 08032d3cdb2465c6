"""What to change in a network, tried: candidates, their order by what training waits for, and real steps.

A candidate is a module that takes the same inputs and returns outputs in the same units as the one that it changes.
So all of them have the same loss, and one goal; to follow advice is to train another module.
"""
