package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Folder finds the logs in a folder: one log, or the generations of a trail in folders
// named 0, 1 and so on.
func Folder(dir string) (Fetch, []string, error) {
	for _, name := range []string{proof.CheckpointFile, proof.HistoryFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return Dir(dir), []string{""}, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("find the trail: %w", err)
	}
	var numbers []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() && strconv.Itoa(n) == e.Name() && n >= 0 && n < maxLogs {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return nil, nil, fmt.Errorf("find the trail: %s has no file %s, and no folder 0", dir, proof.CheckpointFile)
	}
	return Dir(dir), ordered(numbers), nil
}

// maxLogs bounds the generations of a trail. A folder such as 20260301 is none.
const maxLogs = 1000

// ordered names the folders of generations, without a hole: a missing one is found when
// it is read.
func ordered(numbers []int) (dirs []string) {
	for n := range slices.Max(numbers) + 1 {
		dirs = append(dirs, strconv.Itoa(n))
	}
	return dirs
}

// Site finds the logs at an address: of one log, or of a list of generations, as a relay
// serves it under /tlog/.
func Site(ctx context.Context, client *http.Client, url string) (Fetch, []string, error) {
	url = strings.TrimSuffix(url, "/")
	fetch := URL(client, url)
	body, err := fetch(ctx, proof.CheckpointFile)
	if err == nil {
		return fetch, []string{""}, body.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("find the trail: %w", err)
	}
	list, missing, err := fetch.read(ctx, "")
	var logs []struct {
		Number int `json:"number"`
	}
	if err == nil && !missing {
		err = json.Unmarshal(list, &logs)
	}
	if err != nil || len(logs) == 0 {
		return nil, nil, errors.Join(fmt.Errorf("find the trail: %s has neither a checkpoint nor a list of logs", url), err)
	}
	var numbers []int
	for _, l := range logs {
		if l.Number < 0 || l.Number >= maxLogs {
			return nil, nil, fmt.Errorf("find the trail: %s lists the log number %d", url, l.Number)
		}
		numbers = append(numbers, l.Number)
	}
	return fetch, ordered(numbers), nil
}
