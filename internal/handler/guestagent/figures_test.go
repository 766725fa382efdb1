package guestagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/qemu/agent"
)

const (
	mounted = `{"return": [{"name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 4, "total-bytes": 10, "disk": []}]}`
	loaded  = `{"return": {"load1m": 1.5, "load5m": 0.5, "load15m": 0}}`
)

const (
	frozen  = `{"error": {"class": "CommandNotFound", "desc": "Command guest-get-fsinfo has been disabled: the command is not allowed"}}`
	failing = `{"error": {"class": "GenericError", "desc": "it failed"}}`
)

var root = agent.Filesystem{Name: "vda1", Mountpoint: "/", Type: "ext4", UsedBytes: 4, TotalBytes: 10}

func TestAnAgentIsAskedForFiguresWhenSomebodyWantsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": addressed, "guest-get-fsinfo": mounted, "guest-get-load": loaded}}
		w := watch(t, g, nil)
		w.run(func() {
			read := func() Figures {
				f := w.Figures(true)
				synctest.Wait()
				return f
			}
			if f := read(); g.count("guest-get-fsinfo") != 0 || f.Load != nil {
				t.Errorf("an agent that is not there was asked: %+v", f)
			}
			w.becomes(true)
			time.Sleep(time.Hour)
			synctest.Wait()
			if f := w.Figures(false); f.Load != nil {
				t.Errorf("figures of an agent that was not asked: %+v", f)
			}
			synctest.Wait()
			if n := g.count("guest-get-fsinfo"); n != 0 {
				t.Errorf("the agent was asked %d times for what nobody wanted", n)
			}
			read()
			want := Figures{Filesystems: []agent.Filesystem{root}, Load: &agent.Load{Minute: 1.5, FiveMinutes: 0.5}}
			for range 29 { // 29 seconds
				if diff := cmp.Diff(want, read()); diff != "" {
					t.Errorf("figures (-want +got):\n%s", diff)
				}
				time.Sleep(time.Second)
			}
			if n := g.count("guest-get-fsinfo"); n != 1 {
				t.Errorf("the agent was asked %d times within 30 seconds", n)
			}
			time.Sleep(time.Second)
			if read(); g.count("guest-get-fsinfo") != 2 || g.count("guest-get-load") != 2 {
				t.Errorf("the agent was asked %d times", g.count("guest-get-fsinfo"))
			}
			// It answers no more, and then its port closes.
			g.set("guest-get-fsinfo", failing)
			time.Sleep(figuresAge)
			if f := read(); f.Load == nil {
				t.Error("the last answer does not count for five minutes")
			}
			time.Sleep(time.Second)
			if f := read(); f.Load != nil || f.Filesystems != nil {
				t.Errorf("an old answer counts: %+v", f)
			}
			g.set("guest-get-fsinfo", mounted)
			time.Sleep(figuresEvery)
			read()
			if f := read(); f.Load == nil {
				t.Error("an agent that answers again is not asked")
			}
			w.becomes(false)
			if f := read(); f.Load != nil {
				t.Errorf("figures of an agent that has gone: %+v", f)
			}
		})
	})
}

func TestAnOlderAgentHasNoLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-network-get-interfaces": addressed, "guest-get-fsinfo": mounted}}
		w := watch(t, g, nil)
		w.run(func() {
			w.becomes(true)
			w.Figures(true)
			synctest.Wait()
			if f := w.Figures(true); f.Load != nil || len(f.Filesystems) != 1 {
				t.Errorf("figures %+v", f)
			}
		})
	})
}

// While file systems are frozen, an agent disables all other commands.
func TestTheFiguresOfAFrozenGuestStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-network-get-interfaces": addressed, "guest-get-fsinfo": mounted, "guest-get-load": loaded}}
		w := watch(t, g, nil)
		w.run(func() {
			w.becomes(true)
			w.Figures(true)
			synctest.Wait()
			g.set("guest-get-fsinfo", frozen)
			g.set("guest-get-load", frozen)
			for range 10 {
				time.Sleep(figuresEvery)
				w.Figures(true)
				synctest.Wait()
				if f := w.Figures(false); len(f.Filesystems) != 1 || f.Load == nil {
					t.Errorf("figures %+v", f)
				}
			}
			if n := g.count("guest-get-fsinfo"); n != 11 {
				t.Errorf("the agent was asked %d times, want 11", n)
			}
			time.Sleep(time.Second)
			if f := w.Figures(false); f.Filesystems != nil || f.Load != nil {
				t.Errorf("after five minutes there are %+v", f)
			}
		})
	})
}

// A guest may end its QEMU's connections as often as it likes.
func TestARecordOutlivesItsAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-network-get-interfaces": addressed, "guest-get-fsinfo": mounted, "guest-get-load": loaded}}
		var record Record
		for range 3 {
			w := watch(t, g, nil)
			w.env.Record = &record
			w.run(func() {
				w.becomes(true)
				w.Figures(true)
				synctest.Wait()
				if f := w.Figures(false); len(f.Filesystems) != 1 {
					t.Errorf("figures %+v", f)
				}
			})
		}
		if n := g.count("guest-get-fsinfo"); n != 1 || len(record.mounts) != 1 {
			t.Errorf("three agents were asked %d times within 30 seconds; %d file systems are known", n, len(record.mounts))
		}
	})
}

func TestAnAgentThatFailsIsAskedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-network-get-interfaces": addressed, "guest-get-fsinfo": failing}}
		w := watch(t, g, nil)
		w.run(func() {
			w.becomes(true)
			var got []time.Duration
			last, n := time.Now(), 0
			for len(got) < 7 {
				w.Figures(true)
				synctest.Wait()
				if asked := g.count("guest-get-fsinfo"); asked != n {
					got, last, n = append(got, time.Since(last)/time.Second), time.Now(), asked
				}
				if len(got) == 6 {
					g.set("guest-get-fsinfo", mounted)
				}
				time.Sleep(time.Second)
			}
			if diff := cmp.Diff([]time.Duration{0, 30, 60, 120, 240, 300, 300}, got); diff != "" {
				t.Errorf("seconds between the queries (-want +got):\n%s", diff)
			}
			time.Sleep(figuresEvery - time.Second)
			w.Figures(true)
			synctest.Wait()
			if n := g.count("guest-get-fsinfo"); n != 8 {
				t.Errorf("an agent that answers again was asked %d times, want 8", n)
			}
		})
	})
}

// All agents of a node are asked at the same time.
func TestSilentAgentsLeavePlacesAtAScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asking sync.WaitGroup
		places, some := NewPlaces(), NewPlacesForFigures()
		silent := func(context.Context) (net.Conn, error) {
			near, _ := net.Pipe()
			return near, nil
		}
		began := time.Now()
		for range 2 * maxConversations {
			a := New(Env{
				Dial: silent, Places: places, ForFigures: some, Record: &Record{}, Go: func(f func()) { asking.Go(f) }, Now: time.Now, Log: logr.Discard(),
			}, nil)
			a.open, a.connected = true, t.Context()
			a.Figures(true)
		}
		synctest.Wait()
		if len(places) != maxForFigures {
			t.Errorf("%d places are taken, want %d", len(places), maxForFigures)
		}
		asking.Wait()
		if took, want := time.Since(began), 2*maxConversations/maxForFigures*figuresTimeout; took != want {
			t.Errorf("it took %v, want %v", took, want)
		}
	})
}

func TestImpossibleFiguresAreNotBelieved(t *testing.T) {
	var f Record
	long := strings.Repeat("ü", maxLabel)
	list := []agent.Filesystem{
		root, root, {Name: "a", TotalBytes: 0}, {Name: "b", TotalBytes: -1, UsedBytes: -2}, {Name: "c", TotalBytes: 5, UsedBytes: -1},
		{Name: "d", TotalBytes: 5, UsedBytes: 6}, {Name: long, Mountpoint: long, Type: long, TotalBytes: 1},
	}
	short := long[:maxLabel]
	want := []agent.Filesystem{root, {Name: short, Mountpoint: short, Type: short, TotalBytes: 1}}
	if diff := cmp.Diff(want, f.valid(list)); diff != "" {
		t.Errorf("file systems (-want +got):\n%s", diff)
	}
	for _, text := range []string{`{"load1m": -1}`, `{"load15m": 1e300}`, `{"load5m": 4194305}`} {
		var load agent.Load
		if err := json.Unmarshal([]byte(text), &load); err != nil {
			t.Fatal(err)
		}
		if got := validLoad(&load); got != nil {
			t.Errorf("the load %s is valid", text)
		}
	}
}

// A guest that renames its file systems at each query must not fill Prometheus.
func TestAGuestsFileSystemsAreBounded(t *testing.T) {
	var f Record
	names := map[string]bool{}
	for round := range 20 {
		list := []agent.Filesystem{root}
		for i := range 2 * maxFilesystems {
			list = append(list, agent.Filesystem{Name: fmt.Sprint(round, i), TotalBytes: 1})
		}
		shown := f.valid(list)
		if len(shown) > maxFilesystems || shown[0].Name != root.Name {
			t.Fatalf("round %d: %d file systems, the first %q", round, len(shown), shown[0].Name)
		}
		for _, s := range shown {
			names[s.Name] = true
		}
	}
	if len(names) != maxMounts {
		t.Errorf("they were shown under %d names", len(names))
	}
}
