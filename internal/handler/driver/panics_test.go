package driver

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/qemu/qmp"
)

func TestPanicsAreReported(t *testing.T) {
	var got []metrics.Panic
	s := NewSupervisor(&Env{Panicked: func(p metrics.Panic) { got = append(got, p) }})
	instance := scheduled("u")
	a := &attached{agent: guestagent.New(guestagent.Env{}, nil), panicked: newDriver(s.env, instance).countPanic}
	for _, data := range []string{
		`{"action": "poweroff", "info": {"type": "hyper-v", "arg1": 126, "arg2": 1}}`, `{"action": "poweroff"}`, `{"info": {"type": "hyper-v", "arg1": -1}}`, ``, `7`,
	} {
		a.handleEvent(qmp.Event{Name: panicEvent, Data: json.RawMessage(data)})
	}
	a.handleEvent(qmp.Event{Name: "STOP"})
	one := func(kind string, code uint64) metrics.Panic {
		return metrics.Panic{Namespace: instance.Namespace, Name: instance.Name, Kind: kind, Code: code}
	}
	if diff := cmp.Diff([]metrics.Panic{one("hyper-v", 126), one("", 0), one("hyper-v", 0), one("", 0), one("", 0)}, got); diff != "" {
		t.Errorf("panics (-want +got):\n%s", diff)
	}
	newDriver(NewSupervisor(&Env{}).env, instance).countPanic(qmp.Event{})
}

func TestRoundsAreCountedByName(t *testing.T) {
	s := NewSupervisor(&Env{})
	instance := scheduled("u")
	again := instance.DeepCopy()
	again.UID = "v"
	for i, one := range []*Driver{newDriver(s.env, instance), newDriver(s.env, again)} {
		s.drivers[one.uid] = one
		one.rounds.Add(uint64(i + 2))
	}
	if n := s.Rounds(); len(n) != 1 {
		t.Errorf("rounds of one name: %v", n)
	}
	for name, n := range s.Rounds() {
		if name.Namespace != instance.Namespace || name.Name != instance.Name || n != 5 {
			t.Errorf("%s: %d rounds", name, n)
		}
	}
}
