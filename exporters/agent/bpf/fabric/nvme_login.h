/* The command that connects a queue to a controller: the subsystem's name is in its data, the queue's number in
 * itself. */
#ifndef __PLUMBLINE_NVME_LOGIN_H__
#define __PLUMBLINE_NVME_LOGIN_H__

#include "nvme_pdu.h"
#include "user_target.h"

static __noinline void wire_login(struct session *s, struct message *m, struct login_text *text, bool to_target)
{
	if (!to_target) {
		if (m->final) {
			login_done(s);
		} else {
			/* It was refused, and another one may come. */
			s->target[0] = 0;
			s->quiet = 0;
		}
		return;
	}
	/* The controller's own queue is number 0. */
	s->quiet = !m->reference;
	if (text && text->length > CONNECT_NAME && !s->target[0])
		take_name(s, text, CONNECT_NAME);
}

/* No message of this wire reports that another one was refused. */
static __always_inline u32 wire_rejected(struct login_text *text)
{
	return 0xffffffff;
}

#endif
