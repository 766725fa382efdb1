package repository

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logsHome makes loggers of lines about a VM or a VMI, and is the only package that installs a format.
const logsHome = "internal/logs"

// carried are the packages whose loggers name the VM or the VMI before they get them, with the proof.
var carried = map[string]string{
	"internal/handler":                "the driver's tests check each line (logstest.About)",
	"internal/controller/claimsize":   "the loop's lines name the VMI (controller.subject)",
	"internal/controller/evacuation":  "the loop's lines name the VMI (controller.subject)",
	"internal/controller/hotplug":     "the loop's lines name the VMI (controller.subject)",
	"internal/controller/vmi":         "the loop's lines name the VMI (controller.subject)",
	"internal/controller/vm":          "the loop's lines name the VM (controller.subject)",
	"internal/controller/maintenance": "the loop's lines name the VM (controller.subject)",
	"internal/controller/migration":   "the loop's lines name the VMI of the migration (controller.subject)",
}

// besides are functions, as "folder.Function", that know the types of machines and log about something else.
var besides = map[string]string{
	"internal/controller/claimusers.Requests": "about a claim, whose VMIs could not be listed",
}

// installers are functions by which a process's log would get another form.
var installers = map[string][]string{
	"ctrl": {"SetLogger"},
	"klog": {"NewKlogr", "SetLogger", "SetLoggerWithOptions", "SetSlogLogger", "Info", "Infof", "InfoS", "Error", "Errorf", "ErrorS", "Warning", "Warningf"},
	"log":  {"Print", "Printf", "Println", "Fatal", "Fatalf", "Fatalln"},
	"slog": {"SetDefault", "NewTextHandler", "NewJSONHandler"},
}

// ownForm are the packages of programs that write package logline's form themselves.
var ownForm = []string{"internal/importer", "internal/launcher"}

// TestLinesAboutMachinesNameThem fails where a line about a VM or a VMI may lack the namespace, the name or the UID.
func TestLinesAboutMachinesNameThem(t *testing.T) {
	calls := 0
	packages := parsedPackages(t)
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if dir == logsHome || !strings.HasPrefix(dir, "internal/") || strings.HasPrefix(dir, "internal/virtctl") || slices.ContainsFunc(ownForm, func(own string) bool { return within(dir, own) }) {
			continue
		}
		for _, file := range withoutTests(packages[dir]) {
			calls += len(logCalls(file))
			for _, fault := range logFaults(file, nameOf(dir)) {
				function, _, _ := strings.Cut(fault, " ")
				if besides[dir+"."+function] == "" {
					t.Errorf("%s: %s", dir, fault)
				}
			}
		}
	}
	if calls < 80 {
		t.Errorf("only %d log calls are found: the test looks in the wrong place", calls)
	}
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// nameOf reports whether the package's loggers name the machine already.
func nameOf(dir string) bool {
	for parent := range carried {
		if within(dir, parent) {
			return true
		}
	}
	return false
}

// logCalls returns the calls that write a line or add values to a logger.
func logCalls(root ast.Node) (calls []*ast.CallExpr) {
	ast.Inspect(root, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Info", "Error", "WithValues"}, method.Sel.Name) && isLogger(method.X) {
			calls = append(calls, call)
		}
		return true
	})
	return calls
}

func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log"
	case *ast.SelectorExpr:
		return e.Sel.Name == "log" || e.Sel.Name == "Log"
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if home, ok := f.X.(*ast.Ident); ok && home.Name == "logs" {
			return true
		}
		return slices.Contains([]string{"LoggerFrom", "FromContext", "GetLogger"}, f.Sel.Name) || isLogger(f.X)
	}
	return false
}

// logFaults returns the faults of a file's log calls. With carried, its loggers name their machine already.
func logFaults(file *ast.File, carried bool) (faults []string) {
	for home, names := range installers {
		for _, name := range names {
			if contains(file, func(n ast.Node) bool { return named(n, home, name) }) {
				faults = append(faults, fmt.Sprintf("it uses %s.%s: lines are written by a logr.Logger, whose form package logs installs", home, name))
			}
		}
	}
	for _, declared := range file.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, call := range logCalls(f) {
			for _, argument := range call.Args {
				if key := machineKey(argument); key != "" {
					faults = append(faults, fmt.Sprintf("%s logs the key %s itself: take logs.VMI or logs.VM", f.Name.Name, key))
				}
			}
			if method, _ := call.Fun.(*ast.SelectorExpr); !carried && method.Sel.Name != "WithValues" && knowsMachine(f) && !namesMachine(f, method.X) {
				faults = append(faults, fmt.Sprintf("%s logs beside a VM or a VMI without naming it: take logs.VMI or logs.VM", f.Name.Name))
			}
		}
	}
	return faults
}

// machineKey returns a key that only package logs may use, or "".
func machineKey(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		if key, err := strconv.Unquote(literal.Value); err == nil && slices.Contains([]string{"vmi", "vm", "uid", "VMI", "VM"}, key) {
			return literal.Value
		}
	}
	if named(e, "logline", "VMI") || named(e, "logline", "VM") {
		return "of package logline"
	}
	return ""
}

// knowsMachine reports whether a function has a VM or a VMI, by its type, or by the name that they have everywhere.
func knowsMachine(f *ast.FuncDecl) bool {
	return contains(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			return n.Name == "vmi" || n.Name == "vm"
		case *ast.SelectorExpr:
			return slices.Contains([]string{"VirtualMachineInstance", "VirtualMachine", "VMI", "VM"}, n.Sel.Name) && !isPackage(n.X, "logs")
		}
		return false
	})
}

func isPackage(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// namesMachine reports whether the logger of a call comes from package logs, in the call or in an assignment of the
// function.
func namesMachine(f *ast.FuncDecl, logger ast.Expr) bool {
	fromLogs := func(root ast.Node) bool {
		return contains(root, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			return ok && isPackage(s.X, "logs")
		})
	}
	if fromLogs(logger) {
		return true
	}
	return contains(f, func(n ast.Node) bool {
		set, ok := n.(*ast.AssignStmt)
		if !ok || !slices.ContainsFunc(set.Rhs, func(e ast.Expr) bool { return fromLogs(e) }) {
			return false
		}
		return slices.ContainsFunc(set.Lhs, func(e ast.Expr) bool {
			to, ok := e.(*ast.Ident)
			return ok && contains(logger, func(n ast.Node) bool { id, ok := n.(*ast.Ident); return ok && id.Name == to.Name })
		})
	})
}

// TestLinesThatNameNoMachineAreFound breaks the rule in one way after the other.
func TestLinesThatNameNoMachineAreFound(t *testing.T) {
	for text, want := range map[string]string{
		`func f() { ctrl.LoggerFrom(ctx).Info("x", "node", name) }`:                                       "",
		`func f(vmi *v1.VirtualMachineInstance) { logs.VMI(ctrl.LoggerFrom(ctx), vmi).V(1).Info("x") }`:   "",
		`func f(vm *v1.VirtualMachine) { log := logs.VM(ctrl.LoggerFrom(ctx), vm); log.Error(err, "x") }`: "",
		`func (r *R) f() { r.log.Info("x", "vmi", name) }`:                                                `f logs the key "vmi" itself`,
		`func (r *R) f() { r.Log.WithValues("a", 1, "uid", uid) }`:                                        `f logs the key "uid" itself`,
		`func f() { log.V(1).Info("x", logline.VM, name) }`:                                               "f logs the key of package logline itself",
		`func f(vmi *v1.VirtualMachineInstance) { ctrl.LoggerFrom(ctx).Error(err, "x") }`:                 "f logs beside a VM or a VMI",
		`func f() { ctrl.LoggerFrom(ctx).Info("x", "a", o.VMI.Name) }`:                                    "f logs beside a VM or a VMI",
		`func f(object any) { if _, is := object.(*v1.VirtualMachine); is { log.Info("x") } }`:            "f logs beside a VM or a VMI",
		`func f() { ctrl.SetLogger(klog.Background()) }`:                                                  "it uses ctrl.SetLogger",
		`func f() { klog.InfoS("x") }`:                                                                    "it uses klog.InfoS",
		`func f() { log.Printf("x") }`:                                                                    "it uses log.Printf",
	} {
		faults := strings.Join(logFaults(parsed(t, "broken.go", "package p\n"+text), false), "; ")
		if !strings.Contains(faults, want) || want == "" && faults != "" {
			t.Errorf("%s: found %q, want %q", text, faults, want)
		}
	}
	const carrying = `package p
func f(vmi *v1.VirtualMachineInstance) { log.Info("x"); log.Info("x", "vm", 1) }`
	if faults := logFaults(parsed(t, "carrying.go", carrying), true); len(faults) != 1 || !strings.Contains(faults[0], `the key "vm"`) {
		t.Errorf("where loggers name their machine: %v", faults)
	}
}
