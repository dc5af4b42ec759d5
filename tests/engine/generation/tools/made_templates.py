"""Chat templates in the forms that families of models use, as short as they can be: what a call looks like in each."""

from __future__ import annotations

_TURN = "{{ '<|im_start|>' + m.role + '\\n' }}{{ m.content or '' }}"
_END = "{{ '<|im_end|>\\n' }}"
_OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
_TOLD = "{% if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"

HERMES = (
    _TOLD + "{% for m in messages %}" + _TURN + "{% for c in m.tool_calls or [] %}"
    '{{ \'\\n<tool_call>\\n{"name": "\' + c.function.name + \'", "arguments": \' }}{{ c.function.arguments | tojson }}'
    "{{ '}\\n</tool_call>' }}{% endfor %}" + _END + "{% endfor %}" + _OPEN
)
"""Calls as objects between tags; tools as JSON in a system turn."""

HERMES_OF_TEXT = HERMES.replace("c.function.arguments | tojson", "'' + c.function.arguments")
"""The same, taking the arguments of earlier calls as text."""

LLAMA3 = (
    "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}"
    "{{ raise_exception('One call at a time.') }}{% endif %}{{ '<|im_start|>assistant\\n' }}"
    '{{ \'{"name": "\' + m.tool_calls[0].function.name + \'", "parameters": \' }}'
    "{{ m.tool_calls[0].function.arguments | tojson }}{{ '}' }}{% else %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if tools and loop.first %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}{{ m.content }}{% endif %}"
    + _END
    + "{% endfor %}"
    + _OPEN
)
"""Calls as bare objects, one a turn; tools as JSON before what the user says."""

MISTRAL = (
    "{% for m in messages %}{% if m.role == 'user' %}{% if tools and loop.last or tools and loop.first %}"
    "{{ '[AVAILABLE_TOOLS]' }}{{ tools | tojson }}{{ '[/AVAILABLE_TOOLS]' }}{% endif %}{{ '[INST]' + m.content + '[/INST]' }}"
    "{% elif m.tool_calls %}{{ '[TOOL_CALLS][' }}{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
    "{{ raise_exception('An id has nine characters.') }}{% endif %}"
    '{{ \'{"name": "\' + c.function.name + \'", "arguments": \' }}{{ c.function.arguments | tojson }}'
    "{{ ', \"id\": \"' + c.id + '\"}' }}{{ ', ' if not loop.last }}{% endfor %}{{ ']' }}"
    "{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS]{\"content\": ' }}{{ m.content | tojson }}"
    "{{ ', \"call_id\": \"' + m.tool_call_id + '\"}[/TOOL_RESULTS]' }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
"""Calls as a list behind a mark; ids of nine characters."""

MISTRAL_ARGS = (
    "{% for m in messages %}{% if m.role == 'user' %}{% if tools and loop.first %}"
    "{{ '[AVAILABLE_TOOLS]' }}{{ tools | tojson }}{{ '[/AVAILABLE_TOOLS]' }}{% endif %}{{ '[INST]' + m.content + '[/INST]' }}"
    "{% elif m.tool_calls %}{% for c in m.tool_calls %}{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' }}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% elif m.role == 'tool' %}"
    "{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
"""A mark before each call, a mark before its arguments."""

QWEN_XML = (
    _TOLD + "{% for m in messages %}" + _TURN + "{% for c in m.tool_calls or [] %}"
    "{{ '\\n<tool_call>\\n<function=' + c.function.name + '>\\n' }}{% for k, v in c.function.arguments.items() %}"
    "{{ '<parameter=' + k + '>\\n' }}{{ v if v is string else v | tojson }}{{ '\\n</parameter>\\n' }}{% endfor %}"
    "{{ '</function>\\n</tool_call>' }}{% endfor %}" + _END + "{% endfor %}" + _OPEN
)
"""Raw values between tags."""

PYTHONIC = (
    _TOLD + "{% for m in messages %}" + _TURN + "{% if m.tool_calls %}{{ '<|tool_call_start|>[' }}"
    "{% for c in m.tool_calls %}{{ c.function.name + '(' }}{% for k, v in c.function.arguments.items() %}"
    "{{ k + '=' }}{{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %}{{ ')' }}{{ ', ' if not loop.last }}{% endfor %}"
    "{{ ']<|tool_call_end|>' }}{% endif %}" + _END + "{% endfor %}" + _OPEN
)
"""Calls as Python writes them."""

PYTHONIC_BARE = PYTHONIC.replace("<|tool_call_start|>", "").replace("<|tool_call_end|>", "")

UNREAD = (
    _TOLD + "{% for m in messages %}" + _TURN + "{% for c in m.tool_calls or [] %}"
    "{{ '<call to=' + c.function.name + '>' }}{{ c.function.arguments | tojson }}{% endfor %}"
    + _END
    + "{% endfor %}"
    + _OPEN
)
"""Tools, in a form that nobody reads yet."""
