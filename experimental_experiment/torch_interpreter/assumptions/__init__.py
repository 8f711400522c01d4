"""What a captured program takes for granted, one question a file: of the sizes of its example, and of the call that was captured.

What torch.export does not say: another size, or the next call, would do something else in eager. It is proved, told with the line of the model, or refused.
"""
