package server

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// WaitEventVariable is the variable in which a PostgreSQL process keeps where it says what it
// waits for. Like all its global variables it is exported, because extensions link to it.
const WaitEventVariable = "my_wait_event_info"

// VariableAddress returns the address of an exported variable of a process's program, which
// is the same in the process's forks. It reads the symbol table and takes milliseconds.
func VariableAddress(procfs string, pid int, name string) (uint64, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	program, err := elf.Open(filepath.Join(dir, "exe"))
	if err != nil {
		return 0, fmt.Errorf("program file: %w", ended(err))
	}
	defer program.Close()
	symbols, err := program.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("program file: %w", err)
	}
	for _, s := range symbols {
		if s.Name != name || s.Section == elf.SHN_UNDEF {
			continue
		}
		if program.Type == elf.ET_EXEC {
			return s.Value, nil
		}
		bias, err := loadBias(dir, program)
		return s.Value + bias, err
	}
	return 0, fmt.Errorf("program file has no symbol %s", name)
}

// loadBias returns what is to be added to a position-independent program's addresses: where
// the page of its first segment was mapped.
func loadBias(dir string, program *elf.File) (uint64, error) {
	exe, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return 0, ended(err)
	}
	for _, p := range program.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		const page = 4096
		start, err := mapped(filepath.Join(dir, "maps"), exe, p.Off&^(page-1))
		return start - p.Vaddr&^(page-1), err
	}
	return 0, errors.New("program file has nothing to load")
}

// mapped returns where a file is mapped from the given offset on, by a table such as
// /proc/PID/maps, see proc(5).
func mapped(table, file string, offset uint64) (uint64, error) {
	f, err := os.Open(table)
	if err != nil {
		return 0, ended(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		const at, path = 2, 5
		fields := strings.SplitN(lines.Text(), " ", path+1)
		if len(fields) <= path || strings.TrimLeft(fields[path], " ") != file {
			continue
		}
		from, _, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %q: %w", table, fields[0], err)
		}
		if n, err := strconv.ParseUint(fields[at], 16, 64); err == nil && n == offset {
			return start, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, ended(err)
	}
	return 0, fmt.Errorf("%s does not show %s", table, file)
}
