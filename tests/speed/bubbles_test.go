package speed_test

import (
	"go/ast"
	"strings"
)

// bubbles knows which functions of a package's tests run in a bubble of testing/synctest, where
// time is fake. It goes by names, so functions with the same name count as one.
type bubbles struct {
	files []*ast.File
	// funcs are the declared functions and methods.
	funcs []*ast.FuncDecl
	// users are the functions that refer to a name.
	users map[string][]*ast.FuncDecl
	// made caches the results of makes.
	made map[*ast.FuncDecl]bool
	// fake are the names of functions that run only in bubbles.
	fake map[string]bool
}

func findBubbles(files []*ast.File) *bubbles {
	b := &bubbles{files: files, users: make(map[string][]*ast.FuncDecl), made: make(map[*ast.FuncDecl]bool), fake: make(map[string]bool)}
	for _, file := range files {
		for _, declared := range file.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && f.Body != nil {
				b.funcs = append(b.funcs, f)
				b.fake[f.Name.Name] = true
			}
		}
	}
	for _, f := range b.funcs {
		b.findUses(f)
	}
	for name := range b.fake {
		b.fake[name] = !isRoot(name)
	}
	for again := true; again; {
		again = false
		for _, f := range b.funcs {
			if name := f.Name.Name; b.fake[name] && !b.makes(f) && !b.calledInBubbles(f) {
				b.fake[name], again = false, true
			}
		}
	}
	return b
}

// findUses enters a function among the users of the names that it refers to.
func (b *bubbles) findUses(f *ast.FuncDecl) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if users := b.users[id.Name]; len(users) == 0 || users[len(users)-1] != f {
				b.users[id.Name] = append(users, f)
			}
		}
		return true
	})
}

// isRoot reports whether the tool calls a function, in real time.
func isRoot(name string) bool {
	return name == "init" || name == "main" ||
		strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Benchmark") || strings.HasPrefix(name, "Example")
}

// inBubble reports whether a function runs in a bubble or makes one.
func (b *bubbles) inBubble(f *ast.FuncDecl) bool { return b.fake[f.Name.Name] || b.makes(f) }

// makes reports whether a function makes a bubble, or hands a function to one that does.
func (b *bubbles) makes(f *ast.FuncDecl) bool {
	makes, known := b.made[f]
	if !known {
		makes = b.makesBut(f, nil)
		b.made[f] = makes
	}
	return makes
}

func (b *bubbles) makesBut(f *ast.FuncDecl, seen []string) (makes bool) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || makes {
			return !makes
		}
		if isCall(call, "synctest", "Test") || isCall(call, "committertest", "Bubble") {
			makes = true
			return false
		}
		for _, argument := range call.Args {
			if _, ok := argument.(*ast.FuncLit); ok && b.isMaker(called(call), append(seen, f.Name.Name)) {
				makes = true
			}
		}
		return !makes
	})
	return makes
}

// isMaker reports whether a function with a name makes a bubble for a function that it is given.
func (b *bubbles) isMaker(name string, seen []string) bool {
	for _, done := range seen {
		if done == name {
			return false
		}
	}
	for _, f := range b.funcs {
		if f.Name.Name != name {
			continue
		}
		for _, parameter := range f.Type.Params.List {
			if _, ok := parameter.Type.(*ast.FuncType); ok && b.makesBut(f, seen) {
				return true
			}
		}
	}
	return false
}

// calledInBubbles reports whether all that refers to a function is in bubbles. A method called through an interface
// is named by its type.
func (b *bubbles) calledInBubbles(f *ast.FuncDecl) bool {
	if found, all := b.references(f.Name.Name); found {
		return all
	}
	if f.Recv == nil {
		return false
	}
	found, all := b.references(typeName(f.Recv.List[0].Type))
	return found && all
}

// references reports whether functions refer to a name, and whether all of them run in bubbles.
func (b *bubbles) references(name string) (found, all bool) {
	all = true
	for _, f := range b.users[name] {
		if f.Name.Name != name {
			found, all = true, all && b.inBubble(f)
		}
	}
	return found, all
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// called returns the name of the function that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != name {
		return false
	}
	id, ok := f.X.(*ast.Ident)
	return ok && id.Name == pkg
}
