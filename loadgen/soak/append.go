package soak

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
)

// lineFile is a file that lines of JSON are appended to. One that is only half written spoils no other.
type lineFile struct {
	on disk
	// lost is whether a line was only half there when the file was opened.
	lost bool
	// half is whether the file ends with half a line that could not be taken back.
	half bool
}

// disk is what a lineFile needs of an *os.File.
type disk interface {
	io.WriteCloser
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// appendTo opens a file for appending. Half a line that a killed soak left is ended, and stays, so that who reads it
// knows of it.
func appendTo(path string) (*lineFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	l := &lineFile{on: f}
	last, err := unended(f)
	if err == nil && len(last) > 0 {
		l.lost = !json.Valid(last) // else only its end was missing
		_, err = f.Write([]byte("\n"))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// unended is what follows a file's last end of line, at most as much as a line may be.
func unended(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	for n := int64(1); ; n = min(64*n, longestLine, info.Size()) {
		end := make([]byte, n)
		if _, err := f.ReadAt(end, info.Size()-n); err != nil {
			return nil, err
		}
		if at := bytes.LastIndexByte(end, '\n'); at >= 0 || n == info.Size() || n == longestLine {
			return end[at+1:], nil
		}
	}
}

// write appends a line, which ends with its end. What is written of one that could not be in full, as on a full disk,
// is taken back.
func (l *lineFile) write(line []byte) error {
	if l.half {
		line = append([]byte("\n"), line...)
	}
	n, err := l.on.Write(line)
	if err == nil {
		l.half = false
		return nil
	}
	if n > 0 && l.takeBack(int64(n)) != nil {
		l.half = true
	}
	return err
}

func (l *lineFile) takeBack(n int64) error {
	info, err := l.on.Stat()
	if err != nil {
		return err
	}
	return l.on.Truncate(info.Size() - n)
}

func (l *lineFile) close() error { return l.on.Close() }
