package replica

import (
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/platform/platformtest"
)

// Which programs of the wire run on which kernel, each once.
func TestReplicaHooks(t *testing.T) {
	old := []string{"sched_process_exec", "sched_process_exit", "net_dev_queue"}
	sockets := append([]string{"sock_recv_length", "sock_send_length", "sk_data_ready"}, old...)
	for _, c := range []struct {
		name        string
		tracepoints []string
		mode        platform.AttachMode
		want        string // without the prefix replica_; the word of the missing tracepoint if it cannot be
	}{
		{"6.1", old, platform.Functions,
			"exec exit inet_received inet6_received unix_received inet_sent inet6_sent unix_sent unix_sending sending_packet"},
		{"6.12", sockets, platform.Tracepoints, "exec exit received sent sending_local sending_packet"},
		{"6.18", append([]string{"tcp_sendmsg_locked"}, sockets...), platform.Tracepoints, "exec exit received sent sending sending_local"},
		{"none of it", []string{"sched_process_exec"}, platform.Functions, "error: the kernel has no tracepoint sched_process_exit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			hooks, err := dataconnWire().hooksFor(&platform.Kernel{AttachMode: c.mode, Types: platformtest.Types(t, c.tracepoints, nil)})
			if err != nil {
				got = append(got, "error: "+err.Error())
			}
			for _, h := range hooks {
				got = append(got, strings.TrimPrefix(h.program, "replica_"))
			}
			if names := strings.Join(got, " "); names != c.want {
				t.Errorf("%s, want %s", names, c.want)
			}
		})
	}
}
