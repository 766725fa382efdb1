package qmptest

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"drydock.dev/drydock/test/shipped"
)

// answers are the members that Drydock reads of each command's answer, with a dot before a member of a member. Answers of
// qom-get and qom-list belong to objects, of which the schema knows nothing.
var answers = map[string][]string{
	"add-fd":                    {"fdset-id"},
	"calc-dirty-rate":           nil,
	"qom-get":                   nil,
	"qom-list":                  {"name"},
	"query-balloon":             {"actual"},
	"query-block":               {"qdev", "io-status", "tray_open", "locked", "inserted.node-name"},
	"query-block-exports":       {"id"},
	"query-blockstats":          {"qdev", "stats.rd_operations", "stats.wr_operations", "stats.flush_operations", "stats.rd_bytes", "stats.wr_bytes", "stats.rd_total_time_ns", "stats.wr_total_time_ns", "stats.flush_total_time_ns"},
	"query-chardev":             {"label", "frontend-open"},
	"query-cpu-definitions":     {"name", "unavailable-features", "static", "deprecated"},
	"query-cpus-fast":           {"cpu-index", "thread-id"},
	"query-dirty-rate":          {"status", "dirty-rate"},
	"query-dump":                {"completed", "status", "total"},
	"query-fdsets":              {"fdset-id", "fds.opaque"},
	"query-hotpluggable-cpus":   {"type", "props.socket-id", "props.core-id", "props.thread-id", "qom-path"},
	"query-jobs":                {"id", "status", "error", "current-progress", "total-progress"},
	"query-kvm":                 {"enabled"},
	"query-machines":            {"name", "alias", "deprecated"},
	"query-memory-devices":      {"type", "data.id", "data.requested-size", "data.size", "data.max-size"},
	"query-memory-size-summary": {"base-memory", "plugged-memory"},
	"query-migrate": {
		"status", "error-desc", "total-time", "downtime", "expected-downtime", "cpu-throttle-percentage", "ram.total", "ram.transferred",
		"ram.remaining", "ram.page-size", "ram.dirty-pages-rate", "ram.mbps", "ram.dirty-sync-count", "ram.postcopy-bytes",
	},
	"query-migrate-capabilities": {"capability", "state"},
	"query-migrate-parameters":   {"multifd-channels"},
	"query-named-block-nodes":    {"node-name", "image.virtual-size"},
	"query-status":               {"status"},
	"query-version":              {"qemu.major", "qemu.minor", "qemu.micro", "package"},
}

// values are those that Drydock compares with a member of an answer, or sends in one that the source does not show as a
// literal. The statuses of guests and migrations have tests of their own, in runstate and migrationstatus.
var values = map[string]map[string][]string{
	"query-block":          {"io-status": {"failed", "nospace"}},
	"query-jobs":           {"status": {"running", "ready", "concluded"}},
	"query-memory-devices": {"type": {"virtio-mem"}},
	"blockdev-mirror":      {"sync": {"full", "top"}},
	"migrate-continue":     {"state": {"pre-switchover"}},
	"SHUTDOWN":             {"reason": {"guest-shutdown", "guest-panic"}},
	"GUEST_PANICKED":       {"action": {"run"}},
	"WATCHDOG":             {"action": {"poweroff"}},
}

// eventMembers are the members that Drydock reads of an event.
var eventMembers = map[string][]string{
	"ACPI_DEVICE_OST": {"info.slot", "info.slot-type", "info.source", "info.status"}, "DEVICE_DELETED": {"device"}, "DEVICE_UNPLUG_GUEST_ERROR": {"device"},
	"GUEST_PANICKED": {"action"}, "JOB_STATUS_CHANGE": {}, "MEMORY_DEVICE_SIZE_CHANGE": {"id", "size"}, "MIGRATION": {"status"},
	"SHUTDOWN": {"reason"}, "VSERPORT_CHANGE": {"id", "open"}, "WATCHDOG": {"action"},
}

// notEvents are words in capitals of the packages that read events.
var notEvents = []string{"BIOS", "DRYDOCK_ACCEL", "EPYC", "INFO", "NODE_NAME", "POD_IP", "QEMU", "UEFI"}

var capitals = regexp.MustCompile(`^[A-Z][A-Z_]{3,}$`)

// mentions are the parts of QEMU that the source names, beside the commands.
type mentions struct {
	answered map[string]bool // commands with an answer that is read
	capitals map[string]bool
	sent     map[string]map[string][]string // texts that are sent, by command and member
}

func (m *mentions) add(n ast.Node) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if word, is := text(n); is && capitals.MatchString(word) {
			m.capitals[word] = true
		}
	case *ast.CompositeLit:
		m.addQuestion(n)
	case *ast.CallExpr:
		m.addCall(n)
	}
}

// addQuestion finds {"query-…", &answer}.
func (m *mentions) addQuestion(n *ast.CompositeLit) {
	if len(n.Elts) != 2 {
		return
	}
	command, is := text(n.Elts[0])
	if answer, reads := n.Elts[1].(*ast.UnaryExpr); is && reads && answer.Op == token.AND {
		m.answered[command] = true
	}
}

func (m *mentions) addCall(n *ast.CallExpr) {
	command, _, ok := executed(n)
	if !ok {
		return
	}
	if answer := n.Args[len(n.Args)-1]; len(n.Args) > 3 && !isNil(answer) {
		m.answered[command] = true
	}
	literal, _ := n.Args[2].(*ast.CompositeLit)
	if literal == nil {
		return
	}
	for _, element := range literal.Elts {
		pair, is := element.(*ast.KeyValueExpr)
		if !is {
			continue
		}
		name, named := text(pair.Key)
		if value, known := text(pair.Value); named && known {
			if m.sent[command] == nil {
				m.sent[command] = map[string][]string{}
			}
			m.sent[command][name] = append(m.sent[command][name], value)
		}
	}
}

func isNil(e ast.Expr) bool {
	name, is := e.(*ast.Ident)
	return is && name.Name == "nil"
}

func findMentions(t *testing.T, folder string) (mentions, map[string][]string) {
	t.Helper()
	m := mentions{answered: map[string]bool{}, capitals: map[string]bool{}, sent: map[string]map[string][]string{}}
	commands := map[string][]string{}
	eachFile(t, folder, func(file *ast.File) {
		readsEvents := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
			return strings.HasSuffix(i.Path.Value, `/internal/qemu/qmp"`)
		})
		for n := range ast.Preorder(file) {
			if _, is := n.(*ast.BasicLit); is && !readsEvents {
				continue
			}
			m.add(n)
			if command, arguments, ok := executed(n); ok {
				commands[command] = append(commands[command], arguments...)
			}
			if command, arguments, reads, ok := commandLiteral(n); ok {
				commands[command] = append(commands[command], arguments...)
				m.answered[command] = m.answered[command] || reads
			}
		}
	})
	return m, commands
}

func commandLiteral(n ast.Node) (command string, arguments []string, reads, ok bool) {
	literal, is := n.(*ast.CompositeLit)
	if !is {
		return "", nil, false, false
	}
	for _, element := range literal.Elts {
		pair, is := element.(*ast.KeyValueExpr)
		if !is {
			return "", nil, false, false
		}
		switch key, _ := pair.Key.(*ast.Ident); {
		case key == nil:
		case key.Name == "Name":
			command, ok = text(pair.Value)
		case key.Name == "Result":
			reads = true
		case key.Name == "Args":
			arguments = keys(pair.Value)
		}
	}
	return command, arguments, reads, ok && (reads || arguments != nil)
}

// TestQEMUAnswersWhatDrydockReads holds answers, events and values against QEMU, and the tables above against the source.
func TestQEMUAnswersWhatDrydockReads(t *testing.T) {
	types := typesOf(t, shipped.Program(t, "qemu-system-x86_64"))
	found, commands := findMentions(t, "../..")
	for command := range found.answered {
		if _, listed := answers[command]; !listed && types[command].Kind == "command" {
			t.Errorf("the answer of %s is read, and its members are not in the table", command)
		}
	}
	for command, members := range answers {
		if _, sent := commands[command]; !sent && !found.answered[command] {
			t.Errorf("nobody sends %s any more", command)
		}
		for _, name := range members {
			types.check(t, command, types[command].RetType, name)
		}
	}
	for _, sent := range []map[string]map[string][]string{found.sent, values} {
		for name, members := range sent {
			for member, list := range members {
				for _, value := range list {
					types.checkValue(t, name, member, value)
				}
			}
		}
	}
}

func TestQEMUHasTheEventsThatDrydockReads(t *testing.T) {
	types := typesOf(t, shipped.Program(t, "qemu-system-x86_64"))
	found, _ := findMentions(t, "../..")
	known := 0
	for word := range found.capitals {
		if slices.Contains(notEvents, word) {
			continue
		}
		known++
		if event := types[word]; event.Kind != "event" || event.deprecated() {
			t.Errorf("QEMU has no event %s, or it is deprecated", word)
		}
	}
	if known < 15 {
		t.Errorf("only %d events are found in the source: %q", known, slices.Sorted(maps.Keys(found.capitals)))
	}
	for event, members := range eventMembers {
		for _, name := range members {
			types.check(t, event, types[event].ArgType, name)
		}
	}
}

type typeTable map[string]schema

func typesOf(t *testing.T, program string) typeTable {
	t.Helper()
	types := typeTable{}
	for _, entry := range schemaOf(t, program) {
		types[entry.Name] = entry
	}
	return types
}

// check looks for a member of an object, of the objects in an array, or of one of an object's variants.
func (types typeTable) check(t *testing.T, of, object, name string) {
	t.Helper()
	found := types.find(object, strings.Split(name, "."))
	if len(found) == 0 {
		t.Errorf("%s: QEMU lacks its member %s", of, name)
	}
	for _, m := range found {
		if m.deprecated {
			t.Errorf("%s: its member %s is deprecated", of, name)
		}
	}
}

type foundMember struct {
	kind       string
	deprecated bool
}

// find returns all members at a path: variants may have members of the same name.
func (types typeTable) find(object string, path []string) (found []foundMember) {
	is := types[object]
	if is.Element != "" {
		return types.find(is.Element, path)
	}
	inside := is.Variants
	for _, m := range is.Members {
		deprecated := slices.Contains(m.Features, deprecation)
		switch {
		case is.Kind == "alternate":
			inside = append(inside, variant{m.Type})
		case m.Name != path[0]:
		case len(path) == 1:
			found = append(found, foundMember{m.Type, deprecated})
		default:
			for _, f := range types.find(m.Type, path[1:]) {
				found = append(found, foundMember{f.kind, f.deprecated || deprecated})
			}
		}
	}
	for _, v := range inside {
		found = append(found, types.find(v.Type, path)...)
	}
	return found
}

// checkValue passes members whose values are no enumeration: QEMU does not list them.
func (types typeTable) checkValue(t *testing.T, of, member, value string) {
	t.Helper()
	object := types[of].ArgType
	if strings.HasPrefix(of, "query-") {
		object = types[of].RetType
	}
	for _, m := range types.find(object, []string{member}) {
		enum := types[m.kind]
		if enum.Kind != "enum" {
			return
		}
		for _, v := range enum.Members {
			if v.Name == value && !slices.Contains(v.Features, deprecation) {
				return
			}
		}
	}
	t.Errorf("%s: QEMU has no value %s of %s, or it is deprecated", of, value, member)
}
