package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/testkit"
)

// inGroup makes a process with a server's name in a cgroup of a made-up procfs, which runs as a user; hung is one whose
// command line does not answer.
func inGroup(t *testing.T, root string, pid int, user, cgroup string, hung bool) Candidate {
	t.Helper()
	fixture{pid: pid, comm: "postgres", args: []string{"postgres"}, ports: []int{5432}}.write(t, root)
	dir := filepath.Join(root, fmt.Sprint(pid))
	err := errors.Join(os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::"+cgroup+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "status"), []byte(fmt.Sprintf("Uid:\t%s\t%s\t%s\t%s\n", user, user, user, user)), 0o644))
	if line := filepath.Join(dir, "cmdline"); hung {
		err = errors.Join(err, os.Remove(line), syscall.Mkfifo(line, 0o600))
		t.Cleanup(func() {
			if f, err := os.OpenFile(line, os.O_RDWR, 0); err == nil {
				f.Close()
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return Candidate{ID{pid, uint64(1000 + pid)}, PostgreSQL}
}

// However many processes of a neighbour hang while they are scanned, others are scanned meanwhile: whatever users
// he has in his container, whatever cgroups within it, and whatever cgroups a user makes that has one user only.
func TestScansOfOthers(t *testing.T) {
	const container = "/system.slice/docker-"
	number := strings.Repeat("ab", 32)
	for name, neighbour := range map[string]func(n int) (user, cgroup string){
		"in a container": func(n int) (user, cgroup string) { return fmt.Sprint(n), container + number + ".scope" },
		"in cgroups within a container": func(n int) (user, cgroup string) {
			return fmt.Sprint(n), fmt.Sprint(container, number, ".scope/", n)
		},
		"in cgroups of his own": func(n int) (user, cgroup string) { return "1000", fmt.Sprint("/user.slice/", n) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			// Nothing is given up: what hangs does so for as long as the test lasts.
			s := NewScanner(root, untrusted.NewCalls(time.Hour, 8*untrusted.DefaultHanging))
			s.limit = untrusted.NewCalls(20*time.Millisecond, parallel)
			scan := s.ScanFunc()
			for n := range 2 * parallel {
				user, cgroup := neighbour(n)
				c := inGroup(t, root, 100+n, user, cgroup, true)
				go scan(c) //nolint:errcheck // it hangs
			}
			victim := inGroup(t, root, 7, "26", "/system.slice/postgresql.service", false)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				user, _ := neighbour(0)
				over, err := s.limit.Enter(untrusted.Owner{User: user, Group: newProcess(root, 100).group()}, "scan")
				if err != nil {
					return nil
				}
				over()
				return errors.New("the neighbour's scans are not as many as may be")
			})
			answered := make(chan error, 1)
			go func() {
				found, err := scan(victim)
				if err == nil && (found == nil || len(found.Ports) != 1) {
					err = fmt.Errorf("found %+v", found)
				}
				answered <- err
			}()
			select {
			case err := <-answered:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(testkit.DefaultTimeout):
				t.Error("the neighbour's scans hold up another's")
			}
		})
	}
}

// A scan for which its owner has no room is left for another time, and reported.
func TestScanIsLeft(t *testing.T) {
	root := t.TempDir()
	s := NewScanner(root, untrusted.NewCalls(time.Hour, 8*untrusted.DefaultHanging))
	s.limit = untrusted.NewCalls(20*time.Millisecond, parallel)
	owner := untrusted.Owner{}
	c := inGroup(t, root, 7, "26", "/system.slice/postgresql.service", false)
	p := newProcess(root, 7)
	owner.User, owner.Group = "26", p.group()
	var over []func()
	for range parallel / 8 {
		end, err := s.limit.Enter(owner, "scan")
		if err != nil {
			t.Fatal(err)
		}
		over = append(over, end)
	}
	if found, err := s.ScanFunc()(c); found != nil || !untrusted.Unanswered(err) {
		t.Errorf("without room: %+v, %v", found, err)
	}
	over[0]()
	if found, err := s.ScanFunc()(c); found == nil || err != nil {
		t.Errorf("with room: %+v, %v", found, err)
	}
}
