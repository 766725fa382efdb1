package vmihandler

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/runstate"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// observed is a scheduled VMI whose launcher is not connected yet; changes modify it.
func observed(changes ...func(*Observed)) Observed {
	instance := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	instance.Status.Phase = v1.Scheduled
	instance.Status.ActivePods = map[types.UID]string{"pod": "node1"}
	instance.Spec.TerminationGracePeriodSeconds = new(int64(60))
	o := Observed{VMI: instance, Node: "node1", Pod: &Pod{UID: "pod"}, Now: now}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func in(phase v1.VirtualMachineInstancePhase) func(*Observed) {
	return func(o *Observed) { o.VMI.Status.Phase = phase }
}

func launcher(phase launch.Phase) func(*Observed) {
	return func(o *Observed) { o.Link, o.Launcher = LinkUp, launch.State{Phase: phase} }
}

func attached(o *Observed) { o.Attached = true }
func changed(o *Observed)  { o.Changed = true }
func deleted(o *Observed)  { o.VMI.DeletionTimestamp = new(metav1.NewTime(now)) }
func noPod(o *Observed)    { o.Pod = nil }

func stopping(grace int64, ago time.Duration) func(*Observed) {
	return func(o *Observed) { o.Stopping, o.StoppingSince = &grace, now.Add(-ago) }
}

func state(name string) func(*Observed) { return func(o *Observed) { o.RunState = name } }

func resume(o *Observed) { o.Resume = true }
func halted(o *Observed) { o.Halted = true }
func begin(o *Observed)  { o.Halted, o.Begin = true, true }
func plug(o *Observed)   { o.Plug = true }
func linked(o *Observed) { o.Change = SwitchLinks }

func nics(o *Observed) { o.Change = PlugNICs }

func TestNext(t *testing.T) {
	finished := func(o *Observed) { o.Pod.Finished = true }
	gone := func(o *Observed) { o.VMI = nil }
	deserted := func(o *Observed) { o.Deserted = true }
	podRemains := func(o *Observed) { o.Pod.Gone, o.Pod.Remains = true, true }
	podVanished := func(o *Observed) { o.Pod.Gone = true }
	pending := func(o *Observed) { o.Link = LinkPending }
	unprobed := func(o *Observed) { o.Unprobed = true }
	notChosen := func(o *Observed) { o.VMI.Status.ActivePods = map[types.UID]string{"other": "node1"} }
	elsewhere := func(o *Observed) { o.VMI.Status.ActivePods = map[types.UID]string{"pod": "node2"} }
	unexplained := func(o *Observed) { o.ReasonAfter = 3 * time.Second }
	exited := func(pod types.UID) func(*Observed) {
		return func(o *Observed) {
			o.Launcher, o.ExitedIn, o.Changed = launch.State{Phase: launch.PhaseExited}, pod, true
		}
	}
	for name, tc := range map[string]struct {
		o     Observed
		step  Step
		after time.Duration
	}{
		"QEMU has ended in the pod":                          {o: observed(exited("pod")), step: Report},
		"QEMU has ended, and nobody knows why yet":           {o: observed(in(v1.Running), launcher(launch.PhaseExited), unexplained), step: Wait, after: 3 * time.Second},
		"QEMU ended in an earlier pod, of this VMI":          {o: observed(exited("earlier")), step: Release},
		"QEMU ended, and the VMI waits for its next guest":   {o: observed(exited("earlier"), in(v1.Pending)), step: Release},
		"QEMU ended, and the VMI has":                        {o: observed(exited("earlier"), in(v1.Succeeded)), step: Report},
		"scheduled, the pod is not seen yet":                 {o: observed(noPod), step: Wait},
		"scheduled, the pod is there":                        {o: observed(), step: Connect},
		"a phase that this version does not know":            {o: observed(in("Frozen")), step: Connect},
		"the socket is being followed":                       {o: observed(pending), step: Wait},
		"virt-launcher waits":                                {o: observed(launcher(launch.PhaseWaiting)), step: Start},
		"virt-launcher waits while the node's probe goes on": {o: observed(launcher(launch.PhaseWaiting), unprobed), step: Wait},
		"a guest that runs while the node's probe goes on":   {o: observed(in(v1.Running), launcher(launch.PhaseRunning), unprobed), step: Attach},
		"virt-launcher waits in a pod that is not the one":   {o: observed(launcher(launch.PhaseWaiting), notChosen), step: Wait},
		"virt-launcher waits in a pod for another node":      {o: observed(launcher(launch.PhaseWaiting), elsewhere), step: Wait},
		"QEMU has just been started":                         {o: observed(launcher(launch.PhaseRunning)), step: Attach},
		"attached, the status does not say so":               {o: observed(launcher(launch.PhaseRunning), attached, changed), step: Report},
		"all is well":                                        {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached), step: Wait},
		"QEMU has ended":                                     {o: observed(in(v1.Running), launcher(launch.PhaseExited), changed), step: Report},
		"the end is written":                                 {o: observed(in(v1.Succeeded), launcher(launch.PhaseExited)), step: Wait},
		"the VMI is gone":                                    {o: observed(gone), step: Release},
		"the pod has finished and nobody was told":           {o: observed(in(v1.Running), finished), step: Wait},
		"a launcher that has forgotten its guest":            {o: observed(in(v1.Running), launcher(launch.PhaseWaiting), changed), step: Report},

		"the pod is deleted by force while the guest runs":               {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, podRemains), step: Stop},
		"the pod is gone, the guest is to end and is not attached to":    {o: observed(in(v1.Running), launcher(launch.PhaseRunning), podRemains, stopping(60, 0)), step: Wait, after: 75 * time.Second},
		"the pod is gone, and something of it is left":                   {o: observed(in(v1.Running), podRemains), step: Connect},
		"the pod is gone, and nothing of it is left":                     {o: observed(in(v1.Running), podVanished, changed), step: Report, after: remainsAgain},
		"the pod is gone while its launcher waits":                       {o: observed(launcher(launch.PhaseWaiting), podRemains), step: Wait, after: remainsAgain},
		"the VMI does not exist any more while its guest runs":           {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, deserted), step: Stop},
		"the VMI does not exist, its guest stops":                        {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, changed, deserted, stopping(60, 0)), step: Wait, after: 75 * time.Second},
		"the VMI does not exist, its guest does not stop":                {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, deserted, stopping(60, 80*time.Second)), step: Kill, after: killAfter},
		"the VMI does not exist, its launcher is not connected to":       {o: observed(in(v1.Running), deserted), step: Connect},
		"the VMI does not exist, its launcher's socket is followed":      {o: observed(in(v1.Running), pending, deserted), step: Wait, after: remainsAgain},
		"the VMI does not exist, its launcher waits: nothing is started": {o: observed(launcher(launch.PhaseWaiting), deserted), step: Release},
		"the VMI does not exist, its guest has ended":                    {o: observed(in(v1.Running), launcher(launch.PhaseExited), deserted), step: Release},
		"the VMI does not exist, nor does its pod":                       {o: observed(in(v1.Running), pending, noPod, deserted), step: Release},

		"deleted before the launcher is there":        {o: observed(deleted), step: Connect},
		"deleted while virt-launcher waits":           {o: observed(deleted, launcher(launch.PhaseWaiting)), step: Wait},
		"deleted while the guest runs":                {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached), step: Stop},
		"stopping":                                    {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, stopping(60, 10*time.Second)), step: Wait, after: 65 * time.Second},
		"stopping, and something to say":              {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, stopping(60, 10*time.Second), changed), step: Report, after: 65 * time.Second},
		"stopping longer than now allowed":            {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, stopping(300, 10*time.Second)), step: Stop},
		"virt-launcher does not do as it is told":     {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, stopping(60, 75*time.Second)), step: Kill, after: killAfter},
		"a guest of a VMI that is over":               {o: observed(in(v1.Failed), launcher(launch.PhaseRunning)), step: Stop},
		"a VMI that is over, its pod not looked at":   {o: observed(in(v1.Failed)), step: Connect},
		"a VMI that is over, with a launcher at rest": {o: observed(in(v1.Failed), launcher(launch.PhaseWaiting)), step: Wait},

		"an I/O error, the guest is to continue":             {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, state("io-error"), resume), step: Resume},
		"an I/O error, and the VMI does not say so":          {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, state("io-error"), changed), step: Report},
		"an I/O error while the guest is to shut down":       {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, stopping(60, 10*time.Second), resume), step: Resume, after: 65 * time.Second},
		"a guest that cannot continue":                       {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, state("internal-error")), step: Stop},
		"a guest that cannot continue is being ended":        {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, state("internal-error"), stopping(0, time.Second), changed), step: Report, after: 14 * time.Second},
		"a guest that cannot continue and does not end":      {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, state("internal-error"), stopping(0, 15*time.Second)), step: Kill, after: killAfter},
		"a guest that cannot use the rest of its grace":      {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, state("guest-panicked"), stopping(60, 10*time.Second)), step: Stop},
		"a guest in a state that nobody knows is left alone": {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, state("dreaming")), step: Wait},

		"a guest that waits for volumes":              {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, halted), step: Wait},
		"a guest that waits for volumes, one is here": {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, halted, plug), step: Plug},
		"a guest that has waited for volumes":         {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, begin, plug), step: Begin},
		"an interface can be plugged":                 {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, nics), step: PlugNICs},
		"an interface can be plugged after a volume":  {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, nics, plug), step: Plug},
		"an interface before the guest is told":       {o: observed(launcher(launch.PhaseRunning), attached, nics, changed), step: Report},
		"a link is to be switched before it begins":   {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, begin, linked), step: SwitchLinks},
		"a link is to be switched before it is told":  {o: observed(launcher(launch.PhaseRunning), attached, linked, changed), step: SwitchLinks},
		"a link of a guest that is to go":             {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, linked), step: Stop},
		"a link of a guest that an I/O error stopped": {o: observed(in(v1.Running), launcher(launch.PhaseRunning), attached, resume, linked), step: Resume},
		"it has, and its phase is not written yet":    {o: observed(launcher(launch.PhaseRunning), attached, begin, changed), step: Report},
		"it has, and is to go":                        {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, begin), step: Stop},
		"it is to go and has its grace period":        {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), attached, halted, stopping(60, 10*time.Second)), step: Stop},

		// virt-handler was killed and has just started.
		"restarted: nothing was started":           {o: observed(), step: Connect},
		"restarted: QEMU runs, not written yet":    {o: observed(launcher(launch.PhaseRunning)), step: Attach},
		"restarted: the guest runs":                {o: observed(in(v1.Running), launcher(launch.PhaseRunning)), step: Attach},
		"restarted: the guest was being stopped":   {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning)), step: Stop},
		"restarted: the guest is being stopped":    {o: observed(in(v1.Running), deleted, launcher(launch.PhaseRunning), stopping(60, 0)), step: Attach, after: 75 * time.Second},
		"restarted: QEMU has ended, not written":   {o: observed(in(v1.Running), launcher(launch.PhaseExited), changed), step: Report},
		"restarted: the pod is gone too":           {o: observed(in(v1.Running), noPod), step: Wait},
		"restarted: a step fails, and that is new": {o: observed(noPod, changed), step: Report},
	} {
		t.Run(name, func(t *testing.T) {
			step, after := Next(tc.o)
			if step != tc.step || after != tc.after {
				t.Errorf("%s after %v, want %s after %v", step, after, tc.step, tc.after)
			}
		})
	}
}

// TestEverySituation checks the invariants for each step in all combinations of observations.
func TestEverySituation(t *testing.T) {
	situations := 0
	for o := range every() {
		situations++
		step, after := Next(o)
		if broken := invariant(o, step, after); broken != "" {
			t.Fatalf("%s: %s after %v, although %s", situation(o), step, after, broken)
		}
	}
	t.Logf("%d situations", situations)
	if situations < 10000 {
		t.Errorf("only %d situations: the search has lost a dimension", situations)
	}
}

// invariants have a message each, and a function that reports a violation.
var invariants = []struct {
	wrong  string
	broken func(o Observed, step Step, after time.Duration) bool
}{
	{"time does not run backwards", func(_ Observed, _ Step, after time.Duration) bool { return after < 0 }},
	{"everything is let go of exactly when the VMI is gone", func(o Observed, step Step, _ time.Duration) bool {
		return (step == Release) != (o.VMI == nil)
	}},
	{"a guest may not be started", func(o Observed, step Step, _ time.Duration) bool {
		return step == Start && (o.VMI.Status.Phase != v1.Scheduled || o.VMI.DeletionTimestamp != nil)
	}},
	{"this launcher cannot start a guest", func(o Observed, step Step, _ time.Duration) bool {
		return step == Start && (o.Link != LinkUp || o.Launcher.Phase != launch.PhaseWaiting)
	}},
	{"this pod is not the one to run the guest", func(o Observed, step Step, _ time.Duration) bool {
		return step == Start && (o.Pod == nil || o.VMI.Status.ActivePods[o.Pod.UID] != "node1")
	}},
	{"there is nothing to attach to", func(o Observed, step Step, _ time.Duration) bool {
		return step == Attach && (!runs(o) || o.Attached)
	}},
	{"nobody wants this guest to end", func(o Observed, step Step, _ time.Duration) bool {
		broken := o.Attached && runstate.Of(o.RunState).Outlook == runstate.Over
		return (step == Stop || step == Kill) && (!runs(o) || o.VMI.DeletionTimestamp == nil && !o.VMI.IsFinal() && !broken)
	}},
	{"a guest that cannot continue must be ended", func(o Observed, step Step, _ time.Duration) bool {
		broken := o.VMI != nil && runs(o) && o.Attached && runstate.Of(o.RunState).Outlook == runstate.Over
		return broken && o.Stopping == nil && step != Stop
	}},
	{"this guest does not wait for anything", func(o Observed, step Step, _ time.Duration) bool {
		return step == Resume && (!o.Resume || !runs(o) || runstate.Of(o.RunState).Outlook == runstate.Over)
	}},
	{"this guest has been started, or waits, or is to go", func(o Observed, step Step, _ time.Duration) bool {
		return step == Begin && (!runs(o) || !o.Attached || !o.Halted || !o.Begin || o.VMI.Status.Phase != v1.Running || o.VMI.DeletionTimestamp != nil)
	}},
	{"a guest is never ended by force that was not asked first", func(o Observed, step Step, _ time.Duration) bool {
		return step == Kill && o.Stopping == nil
	}},
	{"there is nothing to connect to", func(o Observed, step Step, _ time.Duration) bool {
		return step == Connect && (o.Link != LinkNone || o.Pod == nil || o.Pod.Finished)
	}},
	{"nothing has changed", func(o Observed, step Step, _ time.Duration) bool { return step == Report && !o.Changed }},
	{"a guest whose VMI is to go must be stopped", func(o Observed, step Step, _ time.Duration) bool {
		return runs(o) && o.VMI != nil && o.VMI.DeletionTimestamp != nil && o.Stopping == nil && step != Stop
	}},
	{"nobody would look again at a guest that does not stop", func(o Observed, step Step, after time.Duration) bool {
		return runs(o) && o.VMI != nil && o.VMI.DeletionTimestamp != nil && step == Wait && after == 0
	}},
}

func runs(o Observed) bool { return o.Link == LinkUp && o.Launcher.Phase == launch.PhaseRunning }

// invariant returns the violation by a step, or "".
func invariant(o Observed, step Step, after time.Duration) string {
	for _, i := range invariants {
		if i.broken(o, step, after) {
			return i.wrong
		}
	}
	return ""
}

// every yields all combinations.
func every() func(yield func(Observed) bool) {
	type change = func(*Observed)
	none := func(*Observed) {}
	dimensions := [][]change{
		{none, func(o *Observed) { o.VMI = nil }},
		phases(v1.VmPhaseUnset, v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running, v1.Succeeded, v1.Failed),
		{none, ifVMI(deleted)},
		{none, noPod, func(o *Observed) { o.Pod.Finished = true }, func(o *Observed) { o.Pod.UID = "stranger" }},
		{
			none, func(o *Observed) { o.Link = LinkPending }, launcher(launch.PhaseWaiting), launcher(launch.PhaseRunning),
			launcher(launch.PhaseExited), func(o *Observed) { o.Launcher.Phase = launch.PhaseExited },
		},
		{none, attached},
		{none, stopping(60, 0), stopping(300, 0), stopping(0, 0), stopping(60, 2*time.Minute)},
		{none, changed},
		{none, ifAttached(state("io-error"), resume), ifAttached(state("internal-error")), ifAttached(state("prelaunch"), halted), ifAttached(state("prelaunch"), begin)},
	}
	return func(yield func(Observed) bool) {
		total := 1
		for _, d := range dimensions {
			total *= len(d)
		}
		for n := range total {
			o, rest := observed(), n
			for _, d := range dimensions {
				d[rest%len(d)](&o)
				rest /= len(d)
			}
			if !yield(o) {
				return
			}
		}
	}
}

func ifAttached(changes ...func(*Observed)) func(*Observed) {
	return func(o *Observed) {
		for _, change := range changes {
			if o.Attached {
				change(o)
			}
		}
	}
}

func ifVMI(change func(*Observed)) func(*Observed) {
	return func(o *Observed) {
		if o.VMI != nil {
			change(o)
		}
	}
}

func phases(list ...v1.VirtualMachineInstancePhase) []func(*Observed) {
	var changes []func(*Observed)
	for _, p := range list {
		changes = append(changes, ifVMI(in(p)))
	}
	return changes
}

func situation(o Observed) string {
	text := fmt.Sprintf("pod %+v, link %q, launcher %q, attached %v, stopping %v", o.Pod, o.Link, o.Launcher.Phase, o.Attached, o.Stopping)
	if o.VMI != nil {
		text = fmt.Sprintf("phase %q, deleted %v, %s", o.VMI.Status.Phase, o.VMI.DeletionTimestamp != nil, text)
	}
	return text
}

func TestHowLongAGuestHasToShutDown(t *testing.T) {
	for name, test := range map[string]struct {
		phase v1.VirtualMachineInstancePhase
		grace *int64
		want  int64
	}{
		"the VMI says nothing":      {v1.Running, nil, 30},
		"the VMI says":              {v1.Running, new(int64(600)), 600},
		"no time at all":            {v1.Running, new(int64(0)), 0},
		"less than no time is none": {v1.Running, new(int64(-5)), 0},
		"the VMI is over":           {v1.Failed, new(int64(600)), 0},
	} {
		vmi := &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{TerminationGracePeriodSeconds: test.grace}}
		vmi.Status.Phase = test.phase
		if got := GracePeriod(vmi); got != test.want {
			t.Errorf("%s: %d s, want %d", name, got, test.want)
		}
	}
}

func TestWhichGuestsAreLost(t *testing.T) {
	running := func() Observed {
		return observed(in(v1.Running), launcher(launch.PhaseWaiting), func(o *Observed) { o.Link = LinkUp })
	}
	for name, test := range map[string]struct {
		edit func(*Observed)
		want bool
	}{
		"its launcher waits to be told of a guest": {func(*Observed) {}, true},
		"its launcher has it":                      {func(o *Observed) { o.Launcher.Phase = launch.PhaseRunning }, false},
		"its launcher does not answer":             {func(o *Observed) { o.Link = LinkPending }, false},
		"it has never run":                         {in(v1.Scheduled), false},
		"its VMI is gone":                          {func(o *Observed) { o.VMI = nil }, false},
	} {
		o := running()
		test.edit(&o)
		if got := Lost(o); got != test.want {
			t.Errorf("%s: lost is %v", name, got)
		}
	}
}
