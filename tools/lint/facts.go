package main

import (
	"encoding/gob"
	"go/ast"
	"go/types"
	"maps"
	"reflect"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// golangci-lint copies every object fact into each importer, and staticcheck's nilness has one for nearly every
// function: hence one package fact.
func gatherFacts(a *analysis.Analyzer) {
	for _, fact := range a.FactTypes {
		gob.Register(fact)
	}
	a.FactTypes = []analysis.Fact{new(functionFacts)}
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		g := gathering{pass: pass, own: map[string]analysis.Fact{}}
		inner := *pass
		inner.ImportObjectFact, inner.ExportObjectFact, inner.AllObjectFacts = g.get, g.put, g.all
		result, err := run(&inner)
		if err == nil && len(g.own) > 0 {
			pass.ExportPackageFact(g.facts())
		}
		return result, err
	}
}

// functionFacts are the facts about the functions of one package, sorted by full name, because
// their encoding must be deterministic.
type functionFacts struct {
	Names []string
	Facts []analysis.Fact
}

func (*functionFacts) AFact() {}

func (f *functionFacts) find(name string) analysis.Fact {
	if i, known := slices.BinarySearch(f.Names, name); known {
		return f.Facts[i]
	}
	return nil
}

type gathering struct {
	pass *analysis.Pass
	own  map[string]analysis.Fact
}

func (g gathering) put(object types.Object, fact analysis.Fact) {
	g.own[object.(*types.Func).FullName()] = fact
}

func (g gathering) get(object types.Object, fact analysis.Fact) bool {
	known := g.find(object)
	if known != nil {
		reflect.ValueOf(fact).Elem().Set(reflect.ValueOf(known).Elem())
	}
	return known != nil
}

func (g gathering) find(object types.Object) analysis.Fact {
	function, is := object.(*types.Func)
	if !is || function.Pkg() == nil {
		return nil
	}
	if function.Pkg() == g.pass.Pkg {
		return g.own[function.FullName()]
	}
	var facts functionFacts
	g.pass.ImportPackageFact(function.Pkg(), &facts)
	return facts.find(function.FullName())
}

func (g gathering) facts() *functionFacts {
	f := &functionFacts{Names: slices.Sorted(maps.Keys(g.own))}
	for _, name := range f.Names {
		f.Facts = append(f.Facts, g.own[name])
	}
	return f
}

// all returns the facts about functions that the package declares or uses.
func (g gathering) all() []analysis.ObjectFact {
	facts := map[types.Object]analysis.Fact{}
	for _, objects := range []map[*ast.Ident]types.Object{g.pass.TypesInfo.Defs, g.pass.TypesInfo.Uses} {
		for _, object := range objects {
			function, is := object.(*types.Func)
			if !is {
				continue
			}
			if fact := g.find(function.Origin()); fact != nil {
				facts[function.Origin()] = fact
			}
		}
	}
	var all []analysis.ObjectFact
	for object, fact := range facts {
		all = append(all, analysis.ObjectFact{Object: object, Fact: fact})
	}
	return all
}
