package workspace

import (
	"context"
	"sync"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// memoryTrail is a trail with failures on demand. TestWithTheRealTrail uses the real one.
type memoryTrail struct {
	mu      sync.Mutex
	entries []audit.Entry
	refuse  error // before an entry is added
	lose    error // behind: the entry is there, the answer is not
	damaged map[int64]bool
	// between is called once, between a comparison and its append.
	between func()
	lasts   int // calls of Last
}

// End implements Trail. The real trail names damage by an entry.
func (m *memoryTrail) End(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.entries) + len(m.damaged)), nil
}

func (m *memoryTrail) Last(_ context.Context, project, environment, subject string) (audit.Entry, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lasts++
	e, found := m.last(project, environment, subject)
	return e, found, nil
}

func (m *memoryTrail) last(project, environment, subject string) (audit.Entry, bool) {
	none := audit.Entry{Index: -1}
	for i := len(m.entries) - 1; i >= 0; i-- {
		if m.damaged[int64(i)] {
			none.Unsure = true
		} else if e := m.entries[i]; e.Project == project && e.Environment == environment && e.Subject == subject {
			e.Unsure = none.Unsure
			return e, true
		}
	}
	return none, false
}

func (m *memoryTrail) AppendIf(_ context.Context, e audit.Entry, newest int64) (int64, error) {
	m.mu.Lock()
	if between := m.between; between != nil {
		m.between = nil
		m.mu.Unlock()
		between()
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	last, found := m.last(e.Project, e.Environment, e.Subject)
	if m.refuse != nil {
		return 0, m.refuse
	}
	if found && last.Index != newest || !found && newest != -1 {
		return 0, audit.ErrConflict
	}
	e.Unsure = false
	e.Index = int64(len(m.entries))
	if newest >= 0 {
		e.PreviousIndex = &newest
	}
	m.entries = append(m.entries, e)
	return e.Index, m.lose
}

func (m *memoryTrail) Get(_ context.Context, index int64) (audit.Recorded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index < 0 || index >= int64(len(m.entries)) || m.damaged[index] {
		return audit.Recorded{}, audit.ErrMissing
	}
	return audit.Recorded{Entry: m.entries[index]}, nil
}

// Newest returns the newest entry of each resource with this subject.
func (m *memoryTrail) Newest(_ context.Context, subject string) (newest []audit.Entry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if last, found := m.last(e.Project, e.Environment, subject); found && last.Index == e.Index {
			newest = append(newest, e)
		}
	}
	return newest, nil
}

// states counts the entries about settings, without those about failing reads.
func (m *memoryTrail) states() int {
	return len(m.entries) - len(m.of(typeReadsFailed, typeReadsRecovered))
}

func (m *memoryTrail) of(types ...string) []audit.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []audit.Entry
	for _, e := range m.entries {
		for _, want := range types {
			if e.Type == want {
				out = append(out, e)
			}
		}
	}
	return out
}
