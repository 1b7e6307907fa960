package meaning

import "strings"

// shape is the part of a state known to the rules. The zero value is any value.
type shape struct {
	text    bool // a string or null
	members map[string]*shape
	// suffixes are for members whose names end so.
	suffixes map[string]*shape
	elem     *shape
	// key is the member naming each element; an element without it is unknown.
	key string
}

var (
	anything = &shape{}
	text     = &shape{text: true}
)

func object(members map[string]*shape) *shape { return &shape{members: members} }

func texts(names ...string) *shape {
	s := &shape{members: map[string]*shape{}}
	for _, name := range names {
		s.members[name] = anything
	}
	return s
}

func list(elem *shape) *shape { return &shape{elem: elem} }

func listBy(key string, elem *shape) *shape { return &shape{elem: elem, key: key} }

// strip returns the rest of a state without the known part. An object or array stays as
// an empty one.
func strip(s *shape, v any) any {
	rest, left := s.rest(v)
	if left {
		return rest
	}
	switch v.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	}
	return nil
}

func (s *shape) rest(v any) (rest any, left bool) {
	switch x := v.(type) {
	case map[string]any:
		if s.members != nil || s.suffixes != nil {
			return s.restOfObject(x)
		}
	case []any:
		if s.elem != nil {
			return s.restOfList(x)
		}
	case nil:
		return nil, false
	case string:
		if s.text {
			return nil, false
		}
	}
	return v, s.text || s.members != nil || s.suffixes != nil || s.elem != nil
}

func (s *shape) restOfObject(x map[string]any) (any, bool) {
	out := map[string]any{}
	for name, member := range x {
		inner := s.member(name)
		if inner == nil {
			out[name] = member
		} else if rest, left := inner.rest(member); left {
			out[name] = rest
		}
	}
	return out, len(out) > 0
}

// member is the shape of a member, nil for none.
func (s *shape) member(name string) *shape {
	if known, ok := s.members[name]; ok {
		return known
	}
	for end, known := range s.suffixes {
		if strings.HasSuffix(name, end) {
			return known
		}
	}
	return nil
}

// restOfList keeps the name of an element together with its rest.
func (s *shape) restOfList(x []any) (any, bool) {
	var out []any
	for _, element := range x {
		object, _ := element.(map[string]any)
		name, named := object[s.key].(string)
		if s.key != "" && !named {
			out = append(out, element)
			continue
		}
		rest, left := s.elem.rest(element)
		if !left {
			continue
		}
		if kept, ok := rest.(map[string]any); ok && s.key != "" {
			kept[s.key] = name
		}
		out = append(out, rest)
	}
	return out, len(out) > 0
}
