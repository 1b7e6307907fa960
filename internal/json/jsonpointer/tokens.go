package jsonpointer

// Tokens yields the steps of p from the outside in: the unescaped name of each, and its index,
// or -1 if the name is not an index of an array.
func (p Pointer) Tokens(yield func(name string, index int) bool) {
	for _, t := range p.tokens {
		if !yield(t.name, t.index) {
			return
		}
	}
}
