package meaning

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// Matrix shows who may do what by two RBAC policies, resource by resource.
type Matrix struct {
	// Tables are those of the resources with a difference first, then the others, each by name.
	Tables []MatrixTable
	// Omitted is how many resources, roles or actions are left out, as there are too many.
	Omitted int
}

// MatrixTable is a resource, with a row for each role or scope that may do something on it.
type MatrixTable struct {
	Resource string
	Actions  []string
	Rows     []MatrixRow
	// Gained and Lost count the cells.
	Gained, Lost int
}

// MatrixRow is what a role or scope may do: for each action of the table a cell.
type MatrixRow struct {
	Holder string
	Cells  []Cell
}

// Cell says what became of a permission. "perhaps" means that the policy's own lists do not decide it.
type Cell string

// The cells.
const (
	CellNone    Cell = ""
	CellKept    Cell = "kept"
	CellGained  Cell = "gained"
	CellLost    Cell = "lost"
	CellPerhaps Cell = "perhaps"
)

// The bounds of a matrix, for policies of any size.
const (
	maxTables  = 100
	maxRows    = 200
	maxColumns = 50
)

// PermissionMatrix compares two policies by the same model as [Read] and [WhoCan].
func PermissionMatrix(before, after json.RawMessage) (m Matrix, err error) {
	var sides [2]*policy
	for i, raw := range []json.RawMessage{before, after} {
		s, err := jsontext.Read(raw)
		if err != nil {
			return m, fmt.Errorf("read the policy: %w", err)
		}
		sides[i] = readPolicy(s.Value)
	}
	p := policies{before: sides[0], after: sides[1]}
	p.holders = allHolders(p.before, p.after)
	for _, id := range p.resources() {
		table, omitted := p.table(id)
		m.Omitted += omitted
		if len(table.Rows) > 0 {
			m.Tables = append(m.Tables, table)
		}
	}
	slices.SortStableFunc(m.Tables, func(a, b MatrixTable) int {
		return min(1, b.Gained+b.Lost) - min(1, a.Gained+a.Lost)
	})
	m.Omitted += max(0, len(m.Tables)-maxTables)
	m.Tables = m.Tables[:min(len(m.Tables), maxTables)]
	return m, nil
}

// policies are two to compare.
type policies struct {
	before, after *policy
	holders       []holder
}

// resources are all that are defined, or have a permission.
func (p *policies) resources() []string {
	all := map[string]bool{}
	for _, side := range []*policy{p.before, p.after} {
		for id := range side.resources {
			all[id] = true
		}
		for _, g := range side.holders {
			for id := range g.permissions {
				all[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// actions are all that a list has, or a permission names.
func (p *policies) actions(id string) []string {
	all := map[string]bool{}
	for _, side := range []*policy{p.before, p.after} {
		if r := side.resources[id]; r != nil {
			maps.Copy(all, r.available)
		}
		for _, g := range side.holders {
			if permission := g.permissions[id]; permission != nil {
				maps.Copy(all, permission.actions)
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (p *policies) table(id string) (t MatrixTable, omitted int) {
	t.Resource, t.Actions = visible(id, maxPlace), p.actions(id)
	omitted = max(0, len(t.Actions)-maxColumns)
	t.Actions = t.Actions[:len(t.Actions)-omitted]
	for _, h := range p.holders {
		row := MatrixRow{Holder: visible(h.kind+" "+h.name, maxPlace)}
		told := false
		for _, action := range t.Actions {
			c := cellOf(p.before.side(h, id).verdict(action), p.after.side(h, id).verdict(action))
			told = told || c != CellNone
			row.Cells = append(row.Cells, c)
		}
		if !told {
			continue
		}
		if len(t.Rows) == maxRows {
			omitted++
			continue
		}
		t.Rows = append(t.Rows, row)
		t.count(row.Cells)
	}
	for i, action := range t.Actions {
		t.Actions[i] = visible(action, maxPlace)
	}
	return t, omitted
}

func (t *MatrixTable) count(cells []Cell) {
	for _, c := range cells {
		switch c {
		case CellGained:
			t.Gained++
		case CellLost:
			t.Lost++
		}
	}
}

func cellOf(before, after verdict) Cell {
	switch {
	case before == no && after == no:
		return CellNone
	case before == perhaps || after == perhaps:
		return CellPerhaps
	case before == no:
		return CellGained
	case after == no:
		return CellLost
	}
	return CellKept
}
