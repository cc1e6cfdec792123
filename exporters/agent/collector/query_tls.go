package collector

import (
	"errors"
	"fmt"
	"io"

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

func identify(path string) (fileID, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return fileID{}, err
	}
	var f unix.Statfs_t
	if err := unix.Statfs(path, &f); err != nil {
		return fileID{}, err
	}
	if f.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fileID{inode: s.Ino, modified: s.Mtim, size: s.Size}, nil
	}
	return fileID{device: s.Dev, inode: s.Ino}, nil
}

// tlsProbes are the probes on TLS libraries, one set per library file, however many
// containers show it.
type tlsProbes struct {
	programs *queryPrograms
	probes   map[fileID]*libraryProbes
}

type libraryProbes struct {
	links []io.Closer
	users int
}

// attach probes the library at path for one more server. It returns what detach takes.
func (t *tlsProbes) attach(path string) (fileID, error) {
	id, err := identify(path)
	if err != nil {
		return id, fmt.Errorf("TLS library: %w", err)
	}
	if p := t.probes[id]; p != nil {
		p.users++
		return id, nil
	}
	library, err := link.OpenExecutable(path)
	if err != nil {
		return id, fmt.Errorf("TLS library %s: %w", path, err)
	}
	p := &libraryProbes{users: 1}
	for _, probe := range []struct {
		symbol  string
		program *ebpf.Program
		ret     bool
	}{
		{"SSL_read", t.programs.objects.TlsReadDone, true},
		{"SSL_read", t.programs.objects.TlsRead, false},
		{"SSL_write", t.programs.objects.TlsWrite, false},
	} {
		l, err := t.programs.probe(library, probe.symbol, probe.program, probe.ret)
		if err != nil {
			return id, errors.Join(fmt.Errorf("TLS library %s: %s: %w", path, probe.symbol, err), p.close())
		}
		p.links = append(p.links, l)
	}
	t.probes[id] = p
	return id, nil
}

// detach gives up one server's use of a library.
func (t *tlsProbes) detach(id fileID) error {
	p := t.probes[id]
	if p == nil {
		return nil
	}
	if p.users--; p.users > 0 {
		return nil
	}
	delete(t.probes, id)
	return p.close()
}

func (t *tlsProbes) close() error {
	var problems []error
	for id, p := range t.probes {
		problems = append(problems, p.close())
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
