package images

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
)

// Content is all that is copied, folders' files too: where each is in the image, and in the context.
func (d *Dockerfile) Content(context string) (map[string]string, error) {
	content := map[string]string{}
	for to, source := range d.Folders {
		root := filepath.Join(context, filepath.FromSlash(source))
		err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || entry.IsDir():
				return err
			case !entry.Type().IsRegular():
				return fmt.Errorf("%s: neither file nor folder", file)
			}
			rest, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			rest = filepath.ToSlash(rest)
			content[path.Join(to, rest)] = path.Join(source, rest)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("COPY %s: %w; the Dockerfile's first lines have the command that makes it", source, err)
		}
	}
	maps.Copy(content, d.Files)
	return content, nil
}
