package repository

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// definition is a rule that one package has, and how to recognize a second one.
type definition struct {
	// home is the package that has it; use is the function for others.
	home, use string
	// within is the folder whose packages can use it, "" for all.
	within string
	// looksLike reports whether a function, or a variable, spells the rule itself.
	looksLike func(f ast.Node) bool
	// besides are functions, as "folder.Function", that look like it but differ, with the reason.
	besides map[string]string
}

var definitions = map[string]definition{
	"the newest warning": {
		home: "internal/rules/object/objectevent", use: "objectevent.NewestWarning",
		looksLike: func(f ast.Node) bool { return selects(f, "LastTimestamp") || selects(f, "EventTime") },
	},
	"the claim of a volume": {
		home: "internal/rules/storage/volumeclaim", use: "volumeclaim.Of, Disk, Written or Names",
		looksLike: func(f ast.Node) bool {
			return selects(f, "ClaimName") && selects(f, "PersistentVolumeClaim") && selects(f, "DataVolume")
		},
		besides: map[string]string{
			"internal/api/subresource.validAddition":    "says which name of a request is missing",
			"internal/api/validate/vmispec.volumeRules": "judges every source's own fields",
			"internal/api/subresource.available":        "asks for a DataVolume or for a claim, as the request has it",
			"internal/virtctl/maintenance.diskOn":       "virtctl knows the API and no rules",
		},
	},
	"the VMIs that use a claim": {
		home: "internal/controller/claimusers", use: "claimusers.List or Requests",
		// An index of VMIs by claim, whatever its source of the claims.
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				return ok && selects(call.Fun, "IndexField") && contains(call, func(n ast.Node) bool {
					s, ok := n.(*ast.SelectorExpr)
					return ok && s.Sel.Name == "VirtualMachineInstance"
				})
			})
		},
	},
	"a name with a hash": {
		home: "internal/contracts/layout", use: "layout.HostName, PodName, LabelValue, ReplicaName or their digests",
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool { return named(n, "sha256", "Sum256") }) && selects(f, "EncodeToString")
		},
		besides: map[string]string{
			"images/debian.treeKey": "the key of a cache's folder, of more than one text",
			"images/build.fileKey":  "a file's checksum",
		},
	},
	"the data of a ControllerRevision": {
		home: "internal/rules/object/controllerrevision", use: "controllerrevision.Data",
		// Code that makes the bytes of an API object's data by hand.
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				made, ok := n.(*ast.CompositeLit)
				return ok && named(made.Type, "runtime", "RawExtension")
			})
		},
	},
	"the delays of a back-off": {
		home: "internal/rules/object/backoff", use: "backoff.Doubling, Delay or Retry",
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					return named(n.Type, "wait", "Backoff")
				case *ast.CallExpr: // min(2*delay, longest)
					name, ok := n.Fun.(*ast.Ident)
					return ok && name.Name == "min" && slices.ContainsFunc(n.Args, doubles)
				}
				return named(n, "wait", "ExponentialBackoffWithContext") || named(n, "wait", "ExponentialBackoff")
			})
		},
		besides: map[string]string{
			"test/guest/guestd.next":   "runs in the test's guest, whose memory links no Kubernetes",
			"internal/launcher.began":  "virt-launcher links no Kubernetes",
			"internal/qemu/agent.Exec": "virt-launcher links no Kubernetes",
		},
	},
	"the shorter of two waits, each of which may be none": {
		home: "internal/rules/object/backoff", use: "backoff.Sooner",
		// x == 0 || y < x, or the same with min.
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				e, ok := n.(*ast.BinaryExpr)
				if !ok || e.Op != token.LOR {
					return false
				}
				wait := comparedWithZero(e.X)
				return wait != "" && (contains(e.Y, compares(wait)) || contains(f, minimum(wait)))
			})
		},
	},
	"a DataVolume's condition": {
		home: "internal/rules/storage/datavolume", use: "datavolume.Condition or FailureDetail",
		looksLike: func(f ast.Node) bool {
			ofADataVolume := func(n ast.Node) bool {
				return named(n, "cdiv1", "DataVolumeConditionType") || named(n, "cdiv1", "DataVolumeBound") ||
					named(n, "cdiv1", "DataVolumeReady") || named(n, "cdiv1", "DataVolumeRunning")
			}
			return contains(f, ofADataVolume) && contains(f, func(n ast.Node) bool {
				_, loop := n.(*ast.RangeStmt)
				return loop
			})
		},
		besides: map[string]string{
			"internal/virtctl/imageupload.words": "virtctl knows the API and no rules",
		},
	},
	"the precondition of a deletion": {
		home: "internal/controller/deletion", use: "deletion.Exact, AsSeen or Once",
		// A call of Delete of a controller-runtime client.
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return false
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || method.Sel.Name != "Delete" || len(call.Args) < 2 {
					return false
				}
				switch on := method.X.(type) {
				case *ast.SelectorExpr:
					return strings.EqualFold(on.Sel.Name, "client")
				case *ast.Ident:
					return on.Name == "writer"
				}
				return false
			})
		},
		besides: map[string]string{
			"bench/cluster.DeleteAndAwait":           "the object is the benchmark's own",
			"bench/cluster.NewNamespace":             "the object is the benchmark's own",
			"bench/scale.delete":                     "the object is the benchmark's own",
			"internal/api/registration.take":         "virt-api does not import virt-controller's packages",
			"internal/certs.remove":                  "it does not import virt-controller's packages",
			"internal/controller/datavolume.certify": "the Secret's name has the UID of the worker's owner",
			"internal/controller/datavolume.delete":  "a policy keeps virt-controller from what is not a worker's",
		},
	},
	"a pod's condition": {
		home: "internal/rules/pod/podstatus", use: "podstatus.Condition",
		looksLike: func(f ast.Node) bool {
			ofAPod := func(n ast.Node) bool {
				return named(n, "corev1", "PodConditionType") || named(n, "corev1", "PodScheduled") ||
					named(n, "corev1", "PodReady") || named(n, "corev1", "ContainersReady")
			}
			return contains(f, ofAPod) && contains(f, func(n ast.Node) bool {
				loop, ok := n.(*ast.RangeStmt)
				return ok && selects(loop.X, "Conditions")
			})
		},
		besides: map[string]string{
			"internal/virtctl/maintenance.waiting": "virtctl knows the API and no rules",
		},
	},
	"an absent object is nil": {
		home: "internal/controller/versioned", use: "versioned.Read or Find", within: "internal/controller",
		// A generic function that gets an object and knows the error of a missing one.
		looksLike: func(f ast.Node) bool {
			function, ok := f.(*ast.FuncDecl)
			return ok && function.Type.TypeParams != nil && selects(f, "Get") && (selects(f, "IsNotFound") || selects(f, "IgnoreNotFound"))
		},
	},
	"another writer was faster": {
		home: "internal/controller/versioned", use: "versioned.Write, WriteStatus, Outcome or Overtaken", within: "internal/controller",
		looksLike: func(f ast.Node) bool { return selects(f, "IsConflict") && selects(f, "IsNotFound") },
		besides: map[string]string{
			"internal/controller/cdi.install": "a missing object is created, and only a conflict is another writer's",
		},
	},
	"a migration is under way": {
		home: "internal/rules/migration/switchover", use: "switchover.Open, Completed, Arrived or InFlight",
		// Both fields of a VMI's migration state in one expression or case. switchover.Record has the answer.
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BinaryExpr:
					return (n.Op == token.LOR || n.Op == token.LAND) && ofMigration(n, "Completed") && ofMigration(n, "Failed")
				case *ast.CaseClause:
					has := func(field string) bool {
						return slices.ContainsFunc(n.List, func(e ast.Expr) bool { return ofMigration(e, field) })
					}
					return has("Completed") && has("Failed")
				}
				return false
			})
		},
		besides: map[string]string{
			"bench/migrate.sawVMI": "a benchmark watches the fields themselves",
		},
	},
	"the role of a node in a migration": {
		home: "internal/rules/vmi/vmistatus", use: "vmistatus.HandlerOn, or vmihandler.RoleOf",
		// m.TargetNode == node
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				e, ok := n.(*ast.BinaryExpr)
				if !ok || e.Op != token.EQL {
					return false
				}
				target, ok := e.X.(*ast.SelectorExpr)
				_, is := e.Y.(*ast.Ident)
				return ok && is && target.Sel.Name == "TargetNode"
			})
		},
	},
	"the annotations that record a VMI's volumes": {
		home: "internal/rules/hotplug", use: "hotplug.ReservedAnnotations",
		looksLike: func(f ast.Node) bool { return mentions(f, "RecordAnnotation") && mentions(f, "ForcedAnnotation") },
	},
	"a volume by its name": {
		home: "internal/rules/storage/volumeclaim", use: "volumeclaim.Named",
		// A loop in a function that returns a volume, or func(v v1.Volume) bool { return v.Name == name }.
		looksLike: func(f ast.Node) bool {
			if function, ok := f.(*ast.FuncDecl); ok && returnsVolume(function.Type) {
				return contains(f, func(n ast.Node) bool { _, loop := n.(*ast.RangeStmt); return loop })
			}
			return contains(f, func(n ast.Node) bool {
				literal, ok := n.(*ast.FuncLit)
				return ok && len(literal.Type.Params.List) == 1 && named(literal.Type.Params.List[0].Type, "v1", "Volume") && asksForName(literal.Body)
			})
		},
		besides: map[string]string{
			"internal/rules/hotplug/hotplugspec.remove": "keeps all the others",
		},
	},
	"a pod has ended": {
		home: "internal/rules/pod/podstatus", use: "podstatus.Terminal",
		looksLike: func(f ast.Node) bool {
			return contains(f, func(n ast.Node) bool {
				e, ok := n.(*ast.BinaryExpr)
				return ok && (e.Op == token.LOR || e.Op == token.LAND) && selects(e, "PodSucceeded") && selects(e, "PodFailed")
			})
		},
		besides: map[string]string{
			"internal/virtctl/client.Ended": "virtctl knows the API and no rules",
		},
	},
}

// TestARuleHasOneDefinition fails when a package spells another package's rule. Tests may: they state their
// expectations in their own words. Other modules can't import the rules.
func TestARuleHasOneDefinition(t *testing.T) {
	functions := functionsOf(t)
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		rule := definitions[name]
		atHome, used := false, map[string]bool{}
		for where, named := range functions {
			if !strings.HasPrefix(where, rule.within) || !slices.ContainsFunc(named, rule.looksLike) {
				continue
			}
			dir := where[:strings.LastIndexByte(where, '.')]
			_, excused := rule.besides[where]
			used[where] = excused
			switch {
			case dir == rule.home:
				atHome = true
			case !excused:
				t.Errorf("%s: %s decides it itself; use %s", name, where, rule.use)
			}
		}
		if !atHome {
			t.Errorf("%s: not found in %s: the test looks for the wrong thing", name, rule.home)
		}
		for where := range rule.besides {
			if !used[where] {
				t.Errorf("%s: %s needs no exception any more", name, where)
			}
		}
	}
}

// functionsOf returns the functions and variables of the root module's packages without their tests, by "folder.Name".
func functionsOf(t *testing.T) map[string][]ast.Node {
	t.Helper()
	out := map[string][]ast.Node{}
	modules := moduleFolders(t)
	for dir, files := range parsedPackages(t) {
		if moduleOf(dir, modules) != "" {
			continue
		}
		for _, file := range files {
			if file.test {
				continue
			}
			for _, d := range file.Decls {
				for _, name := range declared(d) {
					out[dir+"."+name] = append(out[dir+"."+name], d)
				}
			}
		}
	}
	return out
}

func declared(d ast.Decl) []string {
	if f, ok := d.(*ast.FuncDecl); ok {
		return []string{f.Name.Name}
	}
	general, ok := d.(*ast.GenDecl)
	if !ok {
		return nil
	}
	var names []string
	for _, spec := range general.Specs {
		if value, ok := spec.(*ast.ValueSpec); ok {
			for _, name := range value.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

func contains(root ast.Node, is func(ast.Node) bool) bool {
	found := false
	ast.Inspect(root, func(n ast.Node) bool {
		found = found || n != nil && is(n)
		return !found
	})
	return found
}

// doubles reports whether an expression is 2*x.
func doubles(e ast.Expr) bool {
	product, ok := e.(*ast.BinaryExpr)
	if !ok || product.Op != token.MUL {
		return false
	}
	two, ok := product.X.(*ast.BasicLit)
	return ok && two.Value == "2"
}

func ofMigration(e ast.Expr, field string) bool {
	return contains(e, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != field {
			return false
		}
		of, ok := s.X.(*ast.SelectorExpr)
		return !ok || of.Sel.Name == "MigrationState"
	})
}

func mentions(root ast.Node, names ...string) bool {
	return contains(root, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return ok && slices.Contains(names, id.Name)
	})
}

func returnsVolume(f *ast.FuncType) bool {
	if f.Results == nil || len(f.Results.List) != 1 {
		return false
	}
	pointer, ok := f.Results.List[0].Type.(*ast.StarExpr)
	return ok && named(pointer.X, "v1", "Volume")
}

func asksForName(body *ast.BlockStmt) bool {
	if len(body.List) != 1 {
		return false
	}
	result, ok := body.List[0].(*ast.ReturnStmt)
	if !ok || len(result.Results) != 1 {
		return false
	}
	e, ok := result.Results[0].(*ast.BinaryExpr)
	return ok && e.Op == token.EQL && selects(e.X, "Name")
}

// comparedWithZero returns what an expression of the form x == 0 compares, "" for any other.
func comparedWithZero(e ast.Expr) string {
	comparison, ok := e.(*ast.BinaryExpr)
	if !ok || comparison.Op != token.EQL {
		return ""
	}
	if zero, ok := comparison.Y.(*ast.BasicLit); !ok || zero.Value != "0" {
		return ""
	}
	switch comparison.X.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return types.ExprString(comparison.X)
	}
	return ""
}

func compares(x string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		e, ok := n.(*ast.BinaryExpr)
		return ok && (e.Op == token.LSS || e.Op == token.GTR) && (types.ExprString(e.X) == x || types.ExprString(e.Y) == x)
	}
}

func minimum(x string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return false
		}
		name, ok := call.Fun.(*ast.Ident)
		return ok && name.Name == "min" && slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return types.ExprString(e) == x })
	}
}

func named(n ast.Node, pkg, name string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

func selects(root ast.Node, field string) bool {
	return contains(root, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		return ok && s.Sel.Name == field
	})
}

// TestTheMarkOfQCOW2IsReadInOnePlace does the same for the header of qcow2 images, which begins with these four bytes.
func TestTheMarkOfQCOW2IsReadInOnePlace(t *testing.T) {
	const mark, home = "QFI" + "\xfb", "internal/qemu/qcow2"
	modules, found := moduleFolders(t), false
	for dir, files := range parsedPackages(t) {
		files = slices.DeleteFunc(files, func(s source) bool { return s.test })
		if moduleOf(dir, modules) != "" || !texts(files)[mark] {
			continue
		}
		found = found || dir == home
		if dir != home {
			t.Errorf("%s knows how a qcow2 image begins; use %s", dir, home)
		}
	}
	if !found {
		t.Errorf("the mark is not found in %s: the test looks for the wrong thing", home)
	}
}
