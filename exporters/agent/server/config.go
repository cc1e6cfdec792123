package server

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Bounds of what is read of a server's configuration, and kept of it: many hostile ones may be read at once. PostgreSQL
// itself stops at ten files within each other.
const (
	maxConfig       = 1 << 20
	maxConfigLine   = 16 << 10
	maxConfigValue  = 1 << 10
	maxConfigValues = 64 // of a file
	maxConfigFiles  = 64
	maxConfigDepth  = 10
)

// nameSetting is the setting that a server's name is taken from; nothing else is.
const nameSetting = "cluster_name"

// mainConfig is the configuration file that includes the others.
const mainConfig = "postgresql.conf"

// configuredName returns PostgreSQL's cluster_name from its files: postgresql.auto.conf before postgresql.conf, the
// last line of either. A file that cannot be read, or that the server itself could not, is left out.
func (p process) configuredName(data *untrusted.Dir, s *Server) string {
	c := &configuration{process: p, data: data, directory: s.DataPath}
	args, err := p.started(data)
	s.NoName = err != nil
	if err == nil {
		if name := setting(args, nameSetting); name != "" {
			return name
		}
		c.read(configFile(args), 0)
	} else {
		c.read(mainConfig, 0)
	}
	c.read("postgresql.auto.conf", 0)
	return c.name
}

// started returns what the server was started with: its arguments or, if they cannot be read, what it wrote of them
// itself.
func (p process) started(data *untrusted.Dir) ([]string, error) {
	if len(p.args) > 0 {
		return p.args, nil
	}
	f, stat, err := data.Open("postmaster.opts", untrusted.NoLinks)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if stat.Uid != p.user {
		return nil, fmt.Errorf("postmaster.opts is not the server's")
	}
	text, err := untrusted.ReadAll(f, maxArguments)
	if err != nil {
		return nil, err
	}
	return unquote(string(text)), nil
}

// configFile returns the path of the main configuration file: as it is named, else in the directory that is.
func configFile(args []string) string {
	if file := setting(args, "config_file"); file != "" {
		return file
	}
	for i, a := range args {
		switch {
		case a == "-D" && i+1 < len(args) && filepath.IsAbs(args[i+1]):
			return filepath.Join(args[i+1], mainConfig)
		case strings.HasPrefix(a, "-D/"):
			return filepath.Join(a[2:], mainConfig)
		}
	}
	return mainConfig
}

// unquote takes apart what PostgreSQL writes into postmaster.opts: the program and its arguments in double quotes.
func unquote(line string) []string {
	program, rest, _ := strings.Cut(strings.TrimSpace(line), ` "`)
	args := []string{program}
	if rest != "" {
		args = append(args, strings.Split(strings.TrimSuffix(rest, `"`), `" "`)...)
	}
	return args
}

// configuration is a walk through PostgreSQL's configuration files.
type configuration struct {
	process
	data      *untrusted.Dir
	directory string
	files     int
	name      string
}

// line is a setting of a configuration file that matters here.
type line struct{ name, value string }

// open reads a file by a path as the server would: within its own root, relative ones from its data directory.
func (c *configuration) open(path string) []line {
	from, how := c.data, untrusted.NoLinks
	path = filepath.Clean(path)
	if rest, within := strings.CutPrefix(path, c.directory+"/"); within {
		path = rest
	}
	if filepath.IsAbs(path) {
		root, err := untrusted.Root(c.root, c.pid)
		if err != nil {
			return nil
		}
		defer root.Close()
		from, how = root, untrusted.InRoot
	}
	f, stat, err := from.Open(path, how)
	if err != nil && how == untrusted.NoLinks {
		// A link, as operators make them, or a way up.
		return c.linked(path)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	return c.content(f, stat)
}

// linked reads a file of the data directory that is a link, by its path in the server's own root.
func (c *configuration) linked(path string) []line {
	root, err := untrusted.Root(c.root, c.pid)
	if err != nil {
		return nil
	}
	defer root.Close()
	f, stat, err := root.Open(filepath.Join(c.directory, path), untrusted.InRoot)
	if err != nil {
		return nil
	}
	defer f.Close()
	return c.content(f, stat)
}

// content reads a file that the server may read: its own, or one of root's that everybody may.
func (c *configuration) content(f *os.File, stat unix.Stat_t) []line {
	const othersRead = 0o004
	if stat.Uid != c.user && (stat.Uid != 0 || stat.Mode&othersRead == 0) {
		return nil
	}
	rest := &io.LimitedReader{R: f, N: maxConfig}
	text := bufio.NewScanner(rest)
	text.Buffer(make([]byte, 0, 4<<10), maxConfigLine)
	var lines []line
	for text.Scan() && len(lines) < maxConfigValues {
		name, value, ok := parseSetting(text.Text())
		switch {
		case !ok, len(value) > maxConfigValue:
		case name == nameSetting, name == "include", name == "include_if_exists", name == "include_dir":
			lines = append(lines, line{name, strings.Clone(value)})
		}
	}
	if text.Err() != nil || rest.N == 0 {
		return nil
	}
	return lines
}

// read takes the name from a file and those that it includes.
func (c *configuration) read(path string, depth int) {
	if depth > maxConfigDepth || c.files >= maxConfigFiles {
		return
	}
	c.files++
	beside := filepath.Dir(path)
	for _, l := range c.open(path) {
		to := l.value
		if !filepath.IsAbs(to) {
			to = filepath.Join(beside, to)
		}
		switch l.name {
		case nameSetting:
			c.name = l.value
		case "include", "include_if_exists":
			c.read(to, depth+1)
		case "include_dir":
			for _, file := range c.list(to) {
				c.read(filepath.Join(to, file), depth+1)
			}
		}
	}
}

// list returns the configuration files of a directory, in their order.
func (c *configuration) list(directory string) []string {
	if !filepath.IsAbs(directory) {
		directory = filepath.Join(c.directory, directory)
	}
	root, err := untrusted.Root(c.root, c.pid)
	if err != nil {
		return nil
	}
	defer root.Close()
	const most = 10 * maxConfigFiles
	names, err := root.Names(directory, untrusted.InRoot, most)
	if err != nil {
		return nil
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".conf") || strings.HasPrefix(n, ".") })
	slices.Sort(names)
	return names
}

// parseSetting reads a line such as cluster_name = 'main' # why. The equals sign may be missing, and the quotes around
// a plain word.
func parseSetting(line string) (name, value string, ok bool) {
	line = strings.TrimSpace(line)
	end := strings.IndexFunc(line, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.')
	})
	if end <= 0 {
		return "", "", false
	}
	name = strings.ToLower(line[:end])
	rest := strings.TrimLeft(line[end:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	if !strings.HasPrefix(rest, "'") {
		value, _, _ = strings.Cut(rest, "#")
		value = strings.TrimSpace(value)
		return name, value, value != ""
	}
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] == '\\' && i+1 < len(rest):
			i++
			b.WriteByte(rest[i])
		case rest[i] == '\'' && i+1 < len(rest) && rest[i+1] == '\'':
			i++
			b.WriteByte('\'')
		case rest[i] == '\'':
			return name, b.String(), true
		default:
			b.WriteByte(rest[i])
		}
	}
	return "", "", false // no closing quote: PostgreSQL does not start with it
}
