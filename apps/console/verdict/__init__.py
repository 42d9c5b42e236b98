"""What is wrong with the platform, in one sentence: an ordered list of rules over values. Pure.

`values` says what is known, `rules` holds the rules in their order, `runbooks` what a person does about each.
"""
