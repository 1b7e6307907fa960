package tiles

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Archiver moves old entry bundles, and the long records of their entries, out of a store.
//
// The archive is an export of all logs: see [Store.Export]. The hash tiles stay in the store too, so
// inclusion and consistency of every entry can be proven from either. The trail's log in the store is
// not touched: every reader of the relay has its entries from there.
//
// The steps, each durable before the next:
//
//  1. the logs are exported, and all of the archive is read back against its signed roots;
//  2. Enter puts an entry into the trail;
//  3. the mark says where the bundles are: from here on nobody misses them;
//  4. the bundles are removed.
//
// A crash at any line loses nothing. After 1 and 2 nothing is moved; given again, the command
// goes on, and enters the archive once more only where the answer to the first entry was lost.
// After 3 some bundles may still be there: given again, the command removes them.
type Archiver struct {
	Store *Store
	// Generations are the trail's: their keys count.
	Generations []audit.Generation
	// Dir is the archive's folder: an empty one, or an earlier archive or export of this trail.
	Dir string
	// Before: only bundles with nothing younger are moved.
	Before time.Time
	// Enter adds an entry of the type [proof.TypeArchived] to the trail, if it is not there yet.
	Enter func(context.Context, proof.Archived) error
	// Progress is told of the entries copied, and how many there are. May be nil.
	Progress func(done, total int64)
}

// Plan lists the files to move, by log, and changes nothing. Where Run would find damage before it moves
// anything, so does Plan.
func (a *Archiver) Plan(ctx context.Context) ([]proof.Archived, error) {
	logs, err := a.logs(ctx)
	if err == nil {
		err = a.checkArchive(ctx)
	}
	for _, m := range logs {
		if err == nil {
			err = m.Check(ctx, m.generation.PublicKey, 0)
		}
	}
	if err != nil {
		return nil, err
	}
	return todo(logs), nil
}

// Run moves the files of Plan, and those left by an interrupted run.
func (a *Archiver) Run(ctx context.Context) ([]proof.Archived, error) {
	logs, err := a.logs(ctx)
	some := slices.ContainsFunc(logs, func(m *moving) bool {
		return m.todo.Size > 0 || slices.ContainsFunc(m.moved, func(p proof.Archived) bool { return p.Where == a.Dir })
	})
	if err == nil && some {
		err = a.checkArchive(ctx)
	}
	if err == nil && some {
		err = a.copy(ctx)
	}
	if err != nil || !some {
		return nil, err
	}
	for _, m := range logs {
		if err := m.move(ctx, a.Enter); err != nil {
			return todo(logs), fmt.Errorf("archive the log %s: %w", m.generation.Origin, err)
		}
	}
	return todo(logs), nil
}

// todo is what is to be moved of some logs.
func todo(logs []*moving) (plan []proof.Archived) {
	for _, m := range logs {
		if m.todo.Size > 0 {
			plan = append(plan, m.todo)
		}
	}
	return plan
}

// generation is the place of the trail's generation with an origin, -1 for none.
func (a *Archiver) generation(origin string) int {
	return slices.IndexFunc(a.Generations, func(g audit.Generation) bool { return g.Origin == origin })
}

// checkArchive refuses a damaged earlier archive. Nothing is mended in it: somebody may have tampered with a
// damaged file.
func (a *Archiver) checkArchive(ctx context.Context) error {
	there, err := Open(a.Dir).Logs()
	for _, listed := range there {
		i := a.generation(listed.Origin)
		if i < 0 {
			continue
		}
		err := Open(a.Dir).Log(listed.Number).Check(ctx, a.Generations[i].PublicKey, 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // an interrupted run has left no checkpoint
			return fmt.Errorf("the archive %s is damaged, and nothing was moved: %w", a.Dir, err)
		}
	}
	return err
}

// copy exports the logs to the archive.
func (a *Archiver) copy(ctx context.Context) error {
	if _, err := a.Store.Export(ctx, a.Dir+"/.", a.Progress); err != nil { // the folder itself may be a link
		return fmt.Errorf("copy to %s: %w", a.Dir, err)
	}
	return nil
}

// logs are those of the trail, the oldest first, with what is to be moved of each. A folder of another
// trail may be among them.
func (a *Archiver) logs(ctx context.Context) (logs []*moving, err error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	list, err := a.Store.Logs()
	ended := false // younger entries follow
	for _, listed := range list {
		i := a.generation(listed.Origin)
		if i < 0 {
			continue
		}
		m, err := a.open(a.Store.Log(listed.Number), a.Generations[i])
		if err == nil && !ended {
			ended, err = m.plan(ctx, a.Before)
		}
		if err != nil {
			return nil, fmt.Errorf("archive the log %s: %w", listed.Origin, err)
		}
		logs = append(logs, m)
	}
	return logs, err
}

// check refuses a folder unfit for an archive of this trail.
func (a *Archiver) check() error {
	if !filepath.IsAbs(a.Dir) {
		return fmt.Errorf("the archive's folder %s is not an absolute path", a.Dir)
	}
	if within(a.Dir, filepath.Dir(a.Store.dir)) || within(a.Store.dir, a.Dir) {
		return fmt.Errorf("the archive's folder %s and the data directory are within each other: name a folder elsewhere", a.Dir)
	}
	if err := plain(a.Dir + "/."); err != nil { // the folder itself may be a link
		return err
	}
	files, err := os.ReadDir(a.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the archive's folder: %w", err)
	}
	for _, f := range files {
		number, err := strconv.Atoi(f.Name())
		switch {
		case f.Name() == "lost+found":
		case err != nil || !f.IsDir():
			return fmt.Errorf("%s has other files, such as %s: name an empty folder, or an earlier archive of this trail", a.Dir, f.Name())
		default:
			_, there, err := Open(a.Dir).Log(number).Checkpoint()
			if _, unknown := a.Store.find(there.Origin); err == nil && unknown != nil {
				err = fmt.Errorf("it is of another trail: %s", there.Origin)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // an interrupted run has left no checkpoint
				return fmt.Errorf("%s is no archive of this trail, or is damaged: log %d: %w", a.Dir, number, err)
			}
		}
	}
	return nil
}

// within reports whether a path is dir, or below it; links are followed as far as they exist.
func within(path, dir string) bool {
	rel, err := filepath.Rel(followed(dir), followed(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func followed(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return cmp.Or(target, path)
	}
	return filepath.Join(followed(filepath.Dir(path)), filepath.Base(path))
}

// open opens one log, with the trail's key for it.
func (a *Archiver) open(l Log, g audit.Generation) (*moving, error) {
	m := &moving{Log: l, dir: a.Dir, generation: g}
	_, c, err := m.signed(g.PublicKey)
	if err != nil {
		return nil, err
	}
	m.size, m.tree = c.Size, m.Log.tree(c.Size, c.Root)
	m.moved, err = m.Archives()
	return m, err
}

// age is when an entry was made, zero for a lost one, and whether it is about the trail itself:
// whoever verifies the trail needs its generations, keys and named damage.
func age(record []byte) (made time.Time, stays bool, err error) {
	var e struct {
		Type string    `json:"type"`
		Time time.Time `json:"time"`
		Lost *int64    `json:"lost_entry"`
	}
	if err := json.Unmarshal(record, &e); err != nil {
		return made, false, err
	}
	if e.Lost == nil && e.Time.IsZero() {
		return made, false, errors.New("it has no time")
	}
	return e.Time, e.Lost != nil || strings.HasPrefix(e.Type, "trail.") && e.Type != "trail.annotated", nil
}

// remove removes files durably. A crash leaves some of them.
func remove(files []string) error {
	folders := map[string]bool{}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an archived file: %w", err)
		}
		folders[filepath.Dir(file)] = true
	}
	for dir := range folders {
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
