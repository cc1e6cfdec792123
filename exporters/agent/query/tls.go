package query

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// fileID identifies the file behind a path as the kernel's probes do: by its inode.
type fileID struct {
	device, inode uint64
	// For overlay mounts, whose device number is the mount's own while the inode number is the
	// one of the file below: two mounts of one layer show the same number, time and size.
	modified unix.Timespec
	size     int64
}

func identify(file *os.File) (fileID, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &s); err != nil {
		return fileID{}, err
	}
	var f unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &f); err != nil {
		return fileID{}, err
	}
	if f.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fileID{inode: s.Ino, modified: s.Mtim, size: s.Size}, nil
	}
	return fileID{device: s.Dev, inode: s.Ino}, nil
}

// maxLibraries bounds the library files that are probed at once.
const maxLibraries = 256

// tlsProbes are the probes on TLS libraries, one set per library file, however many
// containers show it.
type tlsProbes struct {
	programs *queryPrograms

	mu     sync.Mutex // not held while probes come and go, which takes time
	probes map[fileID]*libraryProbes
}

type libraryProbes struct {
	links []io.Closer
	users int
	// ready is closed once the probes are attached, or failed.
	ready  chan struct{}
	failed error
}

func newTLSProbes(programs *queryPrograms) *tlsProbes {
	return &tlsProbes{programs: programs, probes: map[fileID]*libraryProbes{}}
}

// attach probes a library for one more server. It returns what detach takes.
func (t *tlsProbes) attach(library *os.File) (fileID, error) {
	id, err := identify(library)
	if err != nil {
		return id, fmt.Errorf("TLS library: %w", err)
	}
	t.mu.Lock()
	p := t.probes[id]
	first := p == nil
	if first {
		if len(t.probes) >= maxLibraries {
			t.mu.Unlock()
			return id, fmt.Errorf("TLS library: %d others are probed already", maxLibraries)
		}
		p = &libraryProbes{ready: make(chan struct{})}
		t.probes[id] = p
	}
	p.users++
	t.mu.Unlock()
	if first {
		p.failed = t.programs.probeLibrary(p, library)
		close(p.ready)
	}
	<-p.ready
	if p.failed != nil {
		return id, errors.Join(p.failed, t.detach(id))
	}
	return id, nil
}

// probeLibrary attaches the programs to a library.
func (p *queryPrograms) probeLibrary(probes *libraryProbes, library *os.File) error {
	// By its descriptor: the name may stand for another file by now.
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", library.Fd()))
	if err != nil {
		return fmt.Errorf("TLS library: %w", err)
	}
	for _, probe := range []struct {
		symbol  string
		program *ebpf.Program
		ret     bool
	}{
		{"SSL_read", p.programs["tls_read_done"], true},
		{"SSL_read", p.programs["tls_read"], false},
		{"SSL_write", p.programs["tls_write"], false},
	} {
		l, err := p.probe(executable, probe.symbol, probe.program, probe.ret)
		if err != nil {
			return fmt.Errorf("TLS library: %s: %w", probe.symbol, err)
		}
		probes.links = append(probes.links, l)
	}
	return nil
}

// detach gives up one server's use of a library.
func (t *tlsProbes) detach(id fileID) error {
	t.mu.Lock()
	p := t.probes[id]
	if p == nil {
		t.mu.Unlock()
		return nil
	}
	p.users--
	last := p.users == 0
	if last {
		delete(t.probes, id)
	}
	t.mu.Unlock()
	if !last {
		return nil
	}
	return p.close()
}

// close gives up all that is attached.
func (t *tlsProbes) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var problems []error
	for id, p := range t.probes {
		select {
		case <-p.ready:
			problems = append(problems, p.close())
		default: // hangs; it ends with the agent
		}
		delete(t.probes, id)
	}
	return errors.Join(problems...)
}

func (p *libraryProbes) close() error {
	var problems []error
	for _, l := range p.links {
		problems = append(problems, l.Close())
	}
	return errors.Join(problems...)
}

// probe attaches a program to a symbol in every process that uses the library: a server's
// children are processes of their own, so that a filter by process would miss them.
func (p *queryPrograms) probe(library *link.Executable, symbol string, program *ebpf.Program, ret bool) (link.Link, error) {
	switch {
	case p.multi && ret:
		return library.UretprobeMulti([]string{symbol}, program, nil)
	case p.multi:
		return library.UprobeMulti([]string{symbol}, program, nil)
	case ret:
		return library.Uretprobe(symbol, program, nil)
	default:
		return library.Uprobe(symbol, program, nil)
	}
}
