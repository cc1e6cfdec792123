package initiator

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The latest of several commands on a disk that holds back is aborted. istgt does it, and answers no more. tgt finishes
// the command, answers it, and then reports that there is no such task. Either way nothing of it is left.
func TestAbort(t *testing.T) {
	for _, program := range programs {
		t.Run(program.name, func(t *testing.T) {
			testkit.NeedRoot(t)
			testkit.Tool(t, program.name)
			files, at := slowFiles(t)
			p := program.start(t, iqn, filepath.Join(at, "disk"))
			tap := startTap(t, p.Address)
			s, err := Login(tap.Addr().String(), p.Name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Sync(p.LUN, 0, 1); err != nil {
				t.Fatal(err)
			}
			aborted, attempts := 0, 0
			switch program.name {
			case "tgtd":
				if answer, result := abortLast(t, s, files, p.LUN); answer != TaskError(1) || result != nil {
					t.Errorf("abort: %v, the command: %v", answer, result)
				}
			case "istgt":
				aborted = 1
				testkit.Eventually(t, testkit.DefaultTimeout, func() error {
					attempts++
					answer, result := abortLast(t, s, files, p.LUN)
					if answer == nil && result == nil {
						return errors.New("the command was finished each time before istgt saw the abort: it checks between two commands")
					}
					if answer != nil || result != ErrAborted {
						t.Errorf("abort: %v, the command: %v", answer, result)
					}
					return nil
				})
			}
			err = s.Sync(p.LUN, 0, 1)
			tap.mu.Lock()
			defer tap.mu.Unlock()
			if program.name == "istgt" && errors.Is(err, errUnmatched) {
				// It may answer a command all the same that it has aborted, of this attempt or one before.
				if seen := &tap.session; seen.Aborted < aborted || seen.Aborted > attempts || seen.Unmatched > seen.Aborted || seen.UnderWay() != 0 || seen.Resyncs != 0 {
					t.Errorf("followed after %d attempts: %+v", attempts, seen)
				}
				return
			}
			if err != nil {
				t.Errorf("after it: %v", err)
			}
			if seen := &tap.session; seen.Aborted != aborted || seen.UnderWay() != 0 || seen.Unmatched != 0 || seen.Resyncs != 0 {
				t.Errorf("followed: %+v", seen)
			}
		})
	}
}

// abortLast aborts the last of several commands while the first is held back, and returns the answer to the abort and
// what became of the command. The others must succeed.
func abortLast(t *testing.T, s *Session, files *rig.SlowFiles, lun int) (answer, result error) {
	t.Helper()
	const (
		held     = 300 * time.Millisecond
		commands = 4
	)
	files.Syncs.Set(held)
	var tasks []*Task
	for range commands {
		task, err := s.Submit(Sync10(lun, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	answer = s.Abort(tasks[commands-1].Tag)
	files.Syncs.Set(0)
	for i, task := range tasks[:commands-1] {
		if _, err := task.Wait(); err != nil {
			t.Errorf("command %d: %v", i, err)
		}
	}
	_, result = tasks[commands-1].Wait()
	return answer, result
}

// slowFiles makes a file system that can hold back, with the file disk in it.
func slowFiles(t *testing.T) (files *rig.SlowFiles, at string) {
	t.Helper()
	dir := t.TempDir()
	backing, at := filepath.Join(dir, "backing"), filepath.Join(dir, "mounted")
	for _, path := range []string{backing, at} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(backing, "disk"), make([]byte, diskSize), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := rig.NewSlowFiles(t, backing, at)
	if errors.Is(err, rig.ErrNotAllowed) {
		testkit.Skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return files, at
}
