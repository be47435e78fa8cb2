"""RocketMQ 5, spoken by ourselves.

client      one broker, as producers and consumers see it; every answer carries an outcome. Its parts: link,
            sending, pulling, popping, groups
admin       name servers, brokers and controllers, as administrators see them; errors are raised
outcomes    what an answer says about an operation: a table
messages    a message as it is stored and sent
fastjson    the dialect that servers take for JSON
codes       numbers of requests and answers
"""
