package debian

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/textproto"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// Package is what dpkg knows of a package.
type Package struct {
	Name, Version, Architecture string
	// Status is the package's paragraph in dpkg's database.
	Status []byte
}

// dpkg runs a program of dpkg on the system's database. Its output is returned with the error too, as dpkg-query fails
// if it knows only some of the files.
func (s System) dpkg(program string, arguments ...string) (string, error) {
	cmd := exec.Command(program, append([]string{"--root=" + string(s)}, arguments...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	output, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(complaints.String()))
	}
	return string(output), err
}

// names are those under which a package may have a file: since /lib and the like are links into
// /usr, packages name a file by either.
func names(real string) []string {
	if rest, ok := strings.CutPrefix(real, "/usr/"); ok {
		return []string{real, "/" + rest}
	}
	return []string{real}
}

// owners are the packages that have the files, by file, all without links, and the name by which
// each package has its file. A file of no package is an error.
func (s System) owners(files []string) (packages, named map[string]string, err error) {
	arguments := []string{"--search"}
	file := map[string]string{}
	for _, real := range files {
		for _, n := range names(real) {
			arguments = append(arguments, n)
			file[n] = real
		}
	}
	output, failed := s.dpkg("dpkg-query", arguments...)
	if errors.Is(failed, exec.ErrNotFound) {
		return nil, nil, failed
	}
	packages, named = map[string]string{}, map[string]string{}
	for line := range strings.Lines(output) {
		owner, name, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if real, ok := file[name]; ok && !strings.HasPrefix(owner, "diversion by ") {
			packages[real], named[real] = owner, name
		}
	}
	for _, real := range files {
		switch owner := packages[real]; {
		case owner == "":
			return nil, nil, fmt.Errorf("%s: it is of no Debian package", real)
		case strings.Contains(owner, ", "):
			return nil, nil, fmt.Errorf("%s: it is of several packages, %s", real, owner)
		}
	}
	return packages, named, nil
}

// ReadStatus reads a package's paragraph of dpkg's database.
func ReadStatus(text []byte) (Package, error) {
	// The reader wants a blank line at the end.
	fields, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(bytes.TrimSpace(text), "\n\n"...)))).ReadMIMEHeader()
	if err != nil {
		return Package{}, err
	}
	p := Package{Name: fields.Get("Package"), Version: fields.Get("Version"), Architecture: fields.Get("Architecture"), Status: text}
	if p.Name == "" || p.Version == "" || p.Architecture == "" {
		return p, fmt.Errorf("package %q has version %q and architecture %q; none may be empty", p.Name, p.Version, p.Architecture)
	}
	return p, nil
}

// status is what dpkg knows of a package.
func (s System) status(name string) (Package, error) {
	output, err := s.dpkg("dpkg-query", "--status", name)
	if err != nil {
		return Package{}, err
	}
	p, err := ReadStatus([]byte(strings.TrimSpace(output) + "\n"))
	if err != nil {
		return p, fmt.Errorf("dpkg's status of %s: %w", name, err)
	}
	return p, nil
}

// verify refuses files that are not as their packages brought them; named has their names.
func (s System) verify(packages []string, named map[string]bool) error {
	output, failed := s.dpkg("dpkg", append([]string{"--verify"}, packages...)...)
	for line := range strings.Lines(output) {
		// As in "??5??????   /usr/bin/fio", or "??5?????? c /etc/fio.conf", or "missing     /usr/bin/fio".
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if file := fields[len(fields)-1]; named[file] {
			return fmt.Errorf("%s is not as its package brought it: dpkg --verify reports %q", file, strings.TrimSpace(line))
		}
	}
	if output == "" && failed != nil {
		return failed
	}
	return nil
}

// licence is a name of a licence that copyright files refer to.
var licence = regexp.MustCompile(`/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]`)

// copyright is a package's copyright file, and the common licences it refers to.
func (s System) copyright(name string) (text []byte, licences []string, err error) {
	file := "/usr/share/doc/" + name + "/copyright"
	real, err := s.real(file)
	if err != nil {
		return nil, nil, err
	}
	text, err = os.ReadFile(s.at(real))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s: it is not there, and the package's licence belongs into the image: apt-get install --reinstall %s", file, name)
	}
	return text, licence.FindAllString(string(text), -1), err
}
