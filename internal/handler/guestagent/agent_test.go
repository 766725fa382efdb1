package guestagent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// The agent answers from a table.
type guest struct {
	mu      sync.Mutex
	answers map[string]string
	asked   []string
	absent  bool
}

const (
	osInfo      = `{"return": {"id": "debian", "pretty-name": "Debian"}}`
	unknown     = `{"error": {"class": "CommandNotFound", "desc": "no such command"}}`
	addressed   = `{"return": [{"name": "lo"}, {"name": "eth0", "hardware-address": "02:00:00:00:00:01", "ip-addresses": [{"ip-address": "10.0.0.2", "ip-address-type": "ipv4", "prefix": 24}]}]}`
	readdressed = `{"return": [{"name": "lo"}, {"name": "eth0", "hardware-address": "02:00:00:00:00:01", "ip-addresses": [{"ip-address": "10.0.0.9", "ip-address-type": "ipv4", "prefix": 24}]}]}`
	second      = `{"return": [{"name": "eth0", "hardware-address": "02:00:00:00:00:01", "ip-addresses": [{"ip-address": "10.0.0.2", "ip-address-type": "ipv4", "prefix": 24}, {"ip-address": "10.0.0.3", "ip-address-type": "ipv4", "prefix": 24}]}]}`
	upgraded    = `{"return": {"id": "other", "pretty-name": "Debian"}}`
	unaddressed = `{"return": [{"name": "eth0", "hardware-address": "02:00:00:00:00:01"}]}`
)

func (g *guest) set(command, answer string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers[command] = answer
}

func (g *guest) count(command string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, c := range g.asked {
		if c == command {
			n++
		}
	}
	return n
}

// dial connects to the guest's agent.
func (g *guest) dial(context.Context) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.absent {
		return nil, errors.New("nobody listens")
	}
	ours, theirs := net.Pipe()
	go g.serve(theirs)
	return ours, nil
}

func (g *guest) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var r struct {
			Execute   string
			Arguments struct{ ID int64 }
		}
		if json.Unmarshal([]byte(line[strings.LastIndexByte(line, 0xff)+1:]), &r) != nil {
			continue
		}
		answer := fmt.Sprintf("\xff{\"return\": %d}", r.Arguments.ID)
		if r.Execute != "guest-sync-delimited" {
			g.mu.Lock()
			g.asked = append(g.asked, r.Execute)
			answer = g.answers[r.Execute]
			g.mu.Unlock()
			if answer == "" {
				answer = unknown
			}
		}
		fmt.Fprintln(conn, answer)
	}
}

// watched is an Agent with its owner.
type watched struct {
	*Agent
	t       *testing.T
	helpers sync.WaitGroup
	woken   chan struct{}
	wakes   atomic.Int32
}

func watch(t *testing.T, g *guest, known *vmihandler.Agent) *watched {
	w := &watched{t: t, woken: make(chan struct{}, 1)}
	w.Agent = New(Env{
		Dial: g.dial, Places: NewPlaces(), ForFigures: NewPlacesForFigures(), Record: &Record{}, Go: func(f func()) { w.helpers.Go(f) }, Now: time.Now, Log: logr.Discard(),
		Wake: func() {
			w.wakes.Add(1)
			select {
			case w.woken <- struct{}{}:
			default:
			}
		},
	}, known)
	return w
}

func port(open bool) qmp.Event {
	return qmp.Event{Name: "VSERPORT_CHANGE", Data: json.RawMessage(fmt.Sprintf(`{"id": %q, "open": %v}`, qmptest.AgentPort, open))}
}

// run runs the agent's loop for a guest with one interface until do returns, as a driver does.
func (w *watched) run(do func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tended := make(chan struct{})
	go func() {
		defer close(tended)
		for ctx.Err() == nil {
			var timeout <-chan time.Time
			if after := w.SyncPolling(ctx, 1); after > 0 {
				timeout = time.After(after)
			}
			select {
			case <-ctx.Done():
			case <-w.woken:
			case <-timeout:
			}
		}
	}()
	do()
	cancel()
	<-tended
	w.Close()
	w.helpers.Wait()
}

// becomes reports an event and waits for its effects.
func (w *watched) becomes(open bool) {
	if !w.HandleEvent(port(open)) {
		w.t.Error("nobody is to look at an event of the agent's port")
	}
	w.env.Wake()
	synctest.Wait()
}

func TestANewAgentIsAskedUntilItKnowsEveryAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": unaddressed}}
		w := watch(t, g, nil)
		w.run(func() {
			w.becomes(true)
			f := w.Observe()
			if !f.Connected || f.Answer == nil || f.Answer.OS.ID != "debian" || len(f.Answer.Interfaces) != 1 || f.Answer.Interfaces[0].IP != "" {
				t.Fatalf("known is %+v, %+v", f, f.Answer)
			}
			g.set("guest-network-get-interfaces", addressed)
			time.Sleep(time.Second)
			synctest.Wait()
			if a := w.Observe().Answer; a.Interfaces[0].IP != "10.0.0.2" || a.Interfaces[0].MAC != "02:00:00:00:00:01" {
				t.Errorf("the next answer is %+v", a)
			}
			wakes := w.wakes.Load()
			time.Sleep(time.Hour)
			synctest.Wait()
			if n, all := g.count("guest-network-get-interfaces"), g.count("guest-get-osinfo"); n != 2+120 || all != 2+30 {
				t.Errorf("an agent that has answered all was asked %d times within an hour, %d times for all", n-2, all-2)
			}
			if n := w.wakes.Load() - wakes; n != 0 {
				t.Errorf("answers that are the same as the last one are told %d times", n)
			}
		})
	})
}

func TestAnotherAnswerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": addressed}}
		w := watch(t, g, nil)
		w.run(func() {
			w.becomes(true)
			time.Sleep(time.Hour)
			synctest.Wait()
			wakes := w.wakes.Load()
			g.set("guest-network-get-interfaces", readdressed)
			time.Sleep(pollInterval)
			synctest.Wait()
			if a := w.Observe().Answer; a.Interfaces[0].IP != "10.0.0.9" || a.OS.ID != "debian" || a.Commands == nil || w.wakes.Load() != wakes+1 {
				t.Errorf("another address is not told; the answer is %+v", a)
			}
			g.set("guest-get-osinfo", upgraded)
			time.Sleep(pollsForAll * pollInterval)
			synctest.Wait()
			if a := w.Observe().Answer; a.OS.ID != "other" || w.wakes.Load() != wakes+2 {
				t.Errorf("another system is not told; the answer is %+v", a)
			}
		})
	})
}

// docs/networking.md promises this bound.
func TestAnAddressIsToldWithinHalfAMinute(t *testing.T) {
	const bound = 30 * time.Second
	for name, first := range map[string]string{"a guest with all its addresses": addressed, "a guest that had none": unaddressed} {
		for _, since := range []time.Duration{time.Second, 20 * time.Second, 61 * time.Second, 89 * time.Second, 119 * time.Second, 10 * time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				g := &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": first}}
				w := watch(t, g, nil)
				w.run(func() {
					w.becomes(true)
					time.Sleep(since)
					synctest.Wait()
					g.set("guest-network-get-interfaces", second)
					time.Sleep(bound)
					synctest.Wait()
					if a := w.Observe().Answer; !slices.Equal(a.Interfaces[0].IPs, []string{"10.0.0.2", "10.0.0.3"}) {
						t.Errorf("%s, %s after its agent has come: %s after it got another address, it has %v", name, since, bound, a.Interfaces[0].IPs)
					}
				})
			})
		}
	}
}

func TestAnAgentThatVanishesIsForgottenAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": addressed}}
		w := watch(t, g, nil)
		w.run(func() {
			w.becomes(true)
			w.becomes(false)
			time.Sleep(patience / 2)
			w.becomes(true) // a reboot
			time.Sleep(patience)
			synctest.Wait()
			if f := w.Observe(); !f.Connected || f.Answer == nil {
				t.Errorf("after a reboot, known is %+v", f)
			}
			if n := g.count("guest-get-osinfo"); n != 2 {
				t.Errorf("the agent was asked %d times, want once for each time that it appeared", n)
			}
			w.becomes(false)
			time.Sleep(patience - time.Millisecond)
			synctest.Wait()
			if f := w.Observe(); f.Connected || f.Answer == nil {
				t.Errorf("an agent that has just gone: %+v", f)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if f := w.Observe(); f.Answer != nil {
				t.Errorf("of an agent that is gone for long, this is known: %+v", f.Answer)
			}
		})
	})
}

// TestAnAgentThatAppearsAllTheTimeIsNotAskedAllTheTime: each time with another answer.
func TestAnAgentThatAppearsAllTheTimeIsNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": addressed}}
		w := watch(t, g, nil)
		w.run(func() {
			for range 100 {
				w.becomes(true)
				w.becomes(false)
				time.Sleep(100 * time.Millisecond)
			}
			if n := g.count("guest-get-osinfo"); n > 2 {
				t.Errorf("within ten seconds it was asked %d times", n)
			}
		})
	})
}

// TestWhatAnEarlierHandlerKnewStands until the agent answers, or is known to be gone.
func TestWhatAnEarlierHandlerKnewStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{absent: true}
		known := &vmihandler.Agent{}
		known.OS.ID = "known"
		w := watch(t, g, known)
		w.run(func() {
			w.becomes(true)
			time.Sleep(time.Hour)
			synctest.Wait()
			if a := w.Observe().Answer; a == nil || a.OS.ID != "known" {
				t.Errorf("of an agent that does not answer, this is known: %+v", a)
			}
			w.becomes(false)
			time.Sleep(patience)
			synctest.Wait()
			if a := w.Observe().Answer; a != nil {
				t.Errorf("it is gone, and this is known: %+v", a)
			}
		})
	})
}

func TestEventsOfOtherPortsSayNothing(t *testing.T) {
	w := watch(t, &guest{}, nil)
	for _, e := range []qmp.Event{
		{Name: "STOP"}, {Name: "VSERPORT_CHANGE", Data: json.RawMessage(`{"id": "other", "open": true}`)},
		{Name: "VSERPORT_CHANGE", Data: json.RawMessage(`"?"`)}, {Name: "VSERPORT_CHANGE"},
	} {
		if w.HandleEvent(e) || w.Observe().Connected {
			t.Errorf("%s %s changes what is known", e.Name, e.Data)
		}
	}
}

// TestThePortIsFoundAsItIs when a virt-handler takes over; an event is newer than QEMU's answer.
func TestThePortIsFoundAsItIs(t *testing.T) {
	qemu := qmptest.New(t)
	qemu.OpenAgent(true)
	monitor, err := qmp.New(t.Context(), qemu.Dial(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = monitor.Close() }()
	w := watch(t, &guest{}, nil)
	if err := w.QueryPort(t.Context(), monitor); err != nil || !w.Observe().Connected {
		t.Errorf("%v; known is %+v", err, w.Observe())
	}
	w = watch(t, &guest{}, nil)
	w.HandleEvent(port(false))
	if err := w.QueryPort(t.Context(), monitor); err != nil || w.Observe().Connected {
		t.Errorf("after an event: %v; known is %+v", err, w.Observe())
	}
}

// A command that its configuration forbids must count as missing.
func TestAnAgentSaysWhatItLacks(t *testing.T) {
	for name, test := range map[string]struct{ info, has, lacks string }{
		"an agent with some commands":      {`{"return": {"version": "8", "supported_commands": [{"name": "guest-ping", "enabled": true}, {"name": "guest-get-users", "enabled": false}]}}`, "guest-ping", "guest-get-users"},
		"an agent that says nothing of it": {unknown, "guest-ping", "guest-info"},
	} {
		w := watch(t, &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": addressed, "guest-info": test.info}}, nil)
		answer, err := w.queryStatus(t.Context(), nil)
		if err != nil || answer.Commands == nil || slices.Contains(answer.Commands.Missing, test.has) || !slices.Contains(answer.Commands.Missing, test.lacks) {
			t.Errorf("%s: %+v, %v", name, answer.Commands, err)
		}
	}
}

func TestQuestionsOfUsers(t *testing.T) {
	g := &guest{answers: map[string]string{
		"guest-get-osinfo": osInfo, "guest-get-host-name": `{"return": {"host-name": "web"}}`,
		"guest-get-users": `{"return": [{"user": "ann", "login-time": 1}]}`,
		"guest-get-vcpus": `{"return": [{"logical-id": 0, "online": true, "can-offline": false}, {"logical-id": 1, "online": true}, {"logical-id": 2, "online": false}]}`,
	}}
	w := watch(t, g, nil)
	if _, err := w.UsedCPUs(t.Context()); !errors.Is(err, ErrNotConnected) {
		t.Errorf("without an agent: %v", err)
	}
	if _, err := w.UserList(t.Context()); !errors.Is(err, ErrNotConnected) {
		t.Errorf("without an agent: %v", err)
	}
	w.HandleEvent(port(true))
	if list, err := w.UserList(t.Context()); err != nil || len(list.Items) != 1 || list.Items[0].UserName != "ann" {
		t.Errorf("users: %+v, %v", list, err)
	}
	if used, err := w.UsedCPUs(t.Context()); err != nil || used != 2 {
		t.Errorf("%d CPUs are used, %v", used, err)
	}
	// A missing command must be skipped if it is one of several, and must be an error if it is the only one.
	if info, err := w.GuestOSInfo(t.Context()); err != nil || info.Hostname != "web" || info.OS.ID != "debian" {
		t.Errorf("the guest is %+v, %v", info, err)
	}
	if list, err := w.FilesystemList(t.Context()); err == nil {
		t.Errorf("file systems: %+v", list)
	}
}

func TestReboot(t *testing.T) {
	for name, c := range map[string]struct {
		connected    bool
		ping         string
		done, failed bool
	}{
		"there is no agent":                     {false, "", false, false},
		"the agent is there":                    {true, `{"return": {}}`, true, false},
		"the agent refuses":                     {true, `{"error": {"class": "GenericError", "desc": "busy"}}`, true, true},
		"the agent knows nothing of what to do": {true, unknown, false, false},
	} {
		w := watch(t, &guest{answers: map[string]string{"guest-ping": c.ping}}, nil)
		w.HandleEvent(port(c.connected))
		if done, err := w.Reboot(t.Context()); done != c.done || (err != nil) != c.failed {
			t.Errorf("%s: %v, %v", name, done, err)
		}
	}
}

func TestWhatAGuestSaysOfItselfIsBounded(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf(`{"name": "%s", "hardware-address": "02:00:00:00:00:%02x", "ip-addresses": [{"ip-address": "10.0.0.2"}]}`, strings.Repeat("x", 1000), i))
	}
	g := &guest{answers: map[string]string{
		"guest-get-osinfo":             fmt.Sprintf(`{"return": {"id": %q}}`, strings.Repeat("x", 10000)),
		"guest-network-get-interfaces": `{"return": [` + strings.Join(many, ",") + `]}`,
	}}
	answer, err := watch(t, g, nil).queryStatus(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.OS.ID) != maxText || len(answer.Interfaces) != maxReported || len(answer.Interfaces[0].InterfaceName) != maxText {
		t.Errorf("kept are %d bytes, %d interfaces", len(answer.OS.ID), len(answer.Interfaces))
	}
}
