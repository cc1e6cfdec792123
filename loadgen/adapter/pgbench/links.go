package pgbench

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// linked is the first argument of the process that becomes pgbench.
const linked = "pgbench-with-its-log-on-terminals"

// init becomes pgbench if this process has the arguments of command. It is the same program
// again, so that an image without a shell will do.
func init() {
	if len(os.Args) < 2 || os.Args[1] != linked {
		return
	}
	fmt.Fprintln(os.Stderr, become(os.Args[2:]))
	os.Exit(127)
}

// command makes a process whose log names lead to the terminals, and which then becomes
// pgbench: only that way the process ID is known before pgbench opens its log.
func command(prefix string, terminals []string, pgbench []string) []string {
	c := append([]string{"/proc/self/exe", linked, prefix, strconv.Itoa(len(terminals))}, terminals...)
	return append(c, pgbench...)
}

// become makes a link to each terminal, named as pgbench's threads name their logs (PREFIX.PID,
// PREFIX.PID.1, …), and becomes pgbench. It returns only if that fails.
func become(arguments []string) error {
	prefix := arguments[0]
	threads, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	terminals, pgbench := arguments[2:2+threads], arguments[2+threads:]
	name := prefix + "." + strconv.Itoa(os.Getpid())
	for thread, terminal := range terminals {
		link := name
		if thread > 0 {
			link += "." + strconv.Itoa(thread)
		}
		if err := os.Symlink(terminal, link); err != nil {
			return err
		}
	}
	program, err := exec.LookPath(pgbench[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, pgbench, os.Environ()))
}
