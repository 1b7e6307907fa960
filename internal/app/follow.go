package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// followEvery is the time between two looks at the files that the configuration names.
const followEvery = 2 * time.Second

// contents are hashes of what files hold, by their paths. It does not matter how a file was
// replaced: in place, by a rename, or by a link in its path, as Kubernetes does. The hash of a file
// that cannot be read is zero.
type contents map[string][sha256.Size]byte

// mostRead bounds what is read of a file. A larger one is no file that the relay can use.
const mostRead = 1 << 20

func contentsOf(files map[string]string) contents {
	all := contents{}
	for _, file := range files {
		all[file], _ = hashFile(file) // zero: its user says why it cannot be read
	}
	return all
}

func hashFile(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return sum, err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(f, mostRead)); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// since names the fields whose files differ from what they held before, sorted.
func (c contents) since(before contents, files map[string]string) (fields []string) {
	for field, file := range files {
		if was, known := before[file]; known && was != c[file] {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// follower uses changed files. It is of one goroutine.
type follower struct {
	*process
	last    contents // of the look before
	failing retry.Failure
}

// followFiles looks at the files until the relay stops.
func (r *process) followFiles() {
	r.reg.MustRegister(gauge("auditrelay_config_files_usable",
		"1 if the files that the configuration names are used as they are on disk; 0 if a changed one cannot be used, so that what it held before is.",
		func() float64 { return oneIf(*r.reload.files.Load() == "") }))
	r.admin.AddCheck(admin.Check{Name: "files", Probe: func(context.Context) (string, error) {
		if text := *r.reload.files.Load(); text != "" {
			return "warning: " + text, nil
		}
		return "those that the configuration names are used as they are on disk", nil
	}})
	f := &follower{process: r}
	r.stack.push("files", background(func(ctx context.Context) {
		for retry.Sleep(ctx, cmp.Or(r.reload.Every, followEvery)) == nil {
			f.look(ctx)
		}
	}))
}

// look uses files that have changed, once it has seen them twice as they are: one may be written
// at present. What cannot be used is tried again at each look.
func (f *follower) look(ctx context.Context) {
	if f.reload.take(ctx) != nil {
		return
	}
	defer f.reload.giveBack()
	files := f.reload.loaded.Files
	now, before := contentsOf(files), f.last
	f.last = now
	steady := steadyFields(files, before, now)
	if len(steady) == 0 {
		return
	}
	all := now.since(f.reload.used, files)
	changed := slices.DeleteFunc(slices.Clone(all), func(field string) bool { return !slices.Contains(steady, field) })
	var refused []string
	var err error
	switch {
	case !f.reload.sure: // a secret may have changed between its reading and the first look at its file
		refused, err = f.useFiles(ctx, steady, changed, now)
		f.reload.sure = len(steady) == len(files)
	case len(changed) > 0:
		refused, err = f.useFiles(ctx, changed, changed, now)
	case len(all) > 0:
		return
	}
	if ctx.Err() == nil {
		f.tell(refused, err)
	}
}

// steadyFields are those whose sections' files are as they were at the look before, sorted.
func steadyFields(files map[string]string, before, now contents) []string {
	written := map[string]bool{} // the sections with others
	for field, file := range files {
		if was, seen := before[file]; !seen || was != now[file] {
			written[sectionOf(field)] = true
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(field string) bool { return written[sectionOf(field)] })
}

// tell says once which files cannot be used, and why.
func (f *follower) tell(refused []string, err error) {
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	f.reload.files.Store(&wrong)
	f.failing.Tell(f.log.With("fields", strings.Join(refused, ", ")), err,
		"changed files cannot be used; what they held before is used, and they are tried again", "all files can be used again")
}

// refusedContent stands for what a file held that could not be used: no file has this hash.
var refusedContent = [sha256.Size]byte{1}

// useFiles applies the configuration with the files of the fresh fields as they are now: with all of
// them or, if one cannot be used, with those that can. It returns the other ones, and why. Those
// that changed are known to differ from what is used. The turn is held.
func (r *process) useFiles(ctx context.Context, fresh, changed []string, now contents) (refused []string, err error) {
	files := r.reload.loaded.Files
	next, err := r.tryFiles(ctx, fresh, fresh)
	if err != nil {
		next, refused, err = r.tryParts(ctx, partsOf(fresh, files))
	}
	if ctx.Err() != nil || next == nil {
		return refused, err
	}
	used := slices.DeleteFunc(slices.Clone(changed), func(field string) bool { return slices.Contains(refused, field) })
	if len(r.changes(next.Config))+len(used) > 0 {
		late := untilOpened(ctx, r.switchTo(ctx, next.Config, used), r.reload.Patience)
		r.log.Info("changed files are used", "fields", strings.Join(used, ", "), "changing_over", late)
	}
	r.reload.loaded = *next
	for _, field := range fresh {
		switch {
		case !slices.Contains(refused, field):
			r.reload.used[files[field]] = now[files[field]]
		case !slices.Contains(changed, field):
			r.reload.used[files[field]] = refusedContent
		}
	}
	return refused, err
}

// tryParts tries the files of each part by itself. It returns the configuration with those that can
// be used, which is nil if none can.
func (r *process) tryParts(ctx context.Context, parts [][]string) (next *Loaded, refused []string, err error) {
	var used []string
	var faults []error
	for _, part := range parts {
		tried, err := r.tryFiles(ctx, part, slices.Concat(used, part))
		if err != nil {
			refused, faults = append(refused, part...), append(faults, err)
			continue
		}
		next, used = tried, append(used, part...)
	}
	return next, refused, errors.Join(faults...)
}

// partsOf groups fields by what can only be used together: one file, and all files of one section.
func partsOf(fields []string, files map[string]string) (parts [][]string) {
	for _, field := range fields {
		part := []string{field}
		parts = slices.DeleteFunc(parts, func(other []string) bool {
			joined := slices.ContainsFunc(other, func(of string) bool { return files[of] == files[field] || sectionOf(of) == sectionOf(field) })
			if joined {
				part = append(part, other...)
			}
			return joined
		})
		parts = append(parts, part)
	}
	return parts
}

// sectionOf is the sink or the environment that a field belongs to, or else the section around it.
func sectionOf(field string) string {
	for _, list := range []string{"sinks[", "environments["} {
		if strings.HasPrefix(field, list) {
			return field[:strings.Index(field, "]")]
		}
	}
	return field[:max(strings.LastIndex(field, "."), 0)]
}

// tryFiles tries the files of a part, in a configuration with the files of all fresh fields as they
// are now, which it returns.
func (r *process) tryFiles(ctx context.Context, part, fresh []string) (*Loaded, error) {
	cfg, source, err := r.reload.loaded.Again(func(field string) bool { return slices.Contains(fresh, field) })
	if err != nil {
		return nil, fmt.Errorf("read the configuration with its changed files: %w", err)
	}
	report := console.Reloaded{Changes: r.changes(cfg)}
	if err := r.prepare(ctx, &report, cfg, part); err != nil {
		return nil, err
	}
	// Most of these are read at each connection, and otherwise at the start alone. A connection keeps to
	// the last good ones.
	for _, section := range cfg.TLSSections() {
		if !slices.ContainsFunc(part, func(field string) bool { return strings.HasPrefix(field, section.Path+".") }) {
			continue
		}
		if _, err := section.Follow(); err != nil {
			return nil, fmt.Errorf("%s: %w", section.Path, err)
		}
	}
	return &Loaded{cfg, source}, nil
}

// hasFile reports whether one of the fields is a sink's.
func hasFile(cfg *config.Config, sink string, fields []string) bool {
	of := slices.IndexFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == sink })
	return slices.ContainsFunc(fields, func(field string) bool { return strings.HasPrefix(field, fmt.Sprintf("sinks[%d].", of)) })
}
