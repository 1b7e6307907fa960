package damage

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Random does one thing to one file of the store, and says what. The earlier copy of the
// store is where a file that is put back comes from; it may lack the file.
func (s Store) Random(rng *rand.Rand, earlier Store) (about string, err error) {
	files, err := s.Files()
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", errors.New("the store has no files")
	}
	name := files[rng.IntN(len(files))]
	path := filepath.Join(string(s), name)
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	at := func() int64 { return rng.Int64N(max(1, info.Size())) }
	way := rng.IntN(8)
	if info.Size() == 0 {
		way = 0
	}
	switch way {
	case 1:
		about, err = "a bit flipped", Flip(path, at())
	case 2:
		about, err = "a page of zeros", ZeroPage(path, at())
	case 3:
		about, err = "two pages exchanged", SwapPages(path, at(), at())
	case 4:
		about, err = "cut short", os.Truncate(path, at())
	case 5:
		about, err = "put back from an earlier copy", CopyOver(filepath.Join(string(earlier), name), path)
		if errors.Is(err, fs.ErrNotExist) {
			about, err = "a bit flipped", Flip(path, at())
		}
	case 6:
		other := files[rng.IntN(len(files))]
		about, err = "overwritten with a copy of "+other, CopyOver(filepath.Join(string(s), other), path)
	case 7:
		other := files[rng.IntN(len(files))]
		about = "exchanged with " + other
		if other != name {
			err = Swap(path, filepath.Join(string(s), other))
		}
	default:
		about, err = "removed", os.Remove(path)
	}
	return fmt.Sprintf("%s %s", name, about), err
}
