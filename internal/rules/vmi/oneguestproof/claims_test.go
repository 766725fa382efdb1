package oneguestproof

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podlabels"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// Two VMIs with a disk on one claim may have one guest at a time. An editor changes the pods' labels, as far as the
// policy allows it. Each VMI lives once; virt-controller may be cut off between its view and its action.

// sharedClaim is the claim, and mostTries the number of consecutive pods of each VMI.
const (
	sharedClaim = "data"
	mostTries   = 2
)

var errTwoWriters = errors.New("G3: two guests write to one claim")

// sharerPod is the pod of one of the two VMIs. age is its place among all pods by their age.
type sharerPod struct {
	exists, bound, deleting, finished bool
	try, age                          int8
	lost                              lostLabels
	proc                              process
}

// sharer is one of the two VMIs. chosen is the try whose pod its status names, or 0.
type sharer struct {
	phase, chosen, tries int8
	pod                  sharerPod
	// virt-controller's next actions, on condition that the VMI is in that phase.
	busy, create, remove bool
	from, to, choose     int8
}

// sharing is the whole cluster with the two VMIs.
type sharing struct {
	vmis    [2]sharer
	made    int8
	edits   int8
	deletes int8
}

func (s *sharing) String() string { return fmt.Sprintf("%+v", s.vmis) }

func (s *sharing) guests() int {
	n := 0
	for i := range s.vmis {
		if s.vmis[i].pod.proc == guest {
			n++
		}
	}
	return n
}

// sharers has the rules, and the labels that the editor may remove.
type sharers struct {
	// finds reports whether a search for the pods of guests on the claim finds a pod, which belongs to a VMI.
	finds  func(pod *corev1.Pod, of *v1.VirtualMachineInstance) bool
	frozen func(label string) bool
}

// labeledOnly finds pods by the labels from their creation.
func labeledOnly(pod *corev1.Pod, _ *v1.VirtualMachineInstance) bool {
	_, writes := pod.Labels[launcherpod.ClaimLabel(sharedClaim)]
	return writes
}

// byVMIsToo also finds them by the names of the other VMI's pods.
func byVMIsToo(pod *corev1.Pod, of *v1.VirtualMachineInstance) bool {
	_, holds := vmicontroller.HolderOf([]string{sharedClaim}, of, pod)
	return labeledOnly(pod, of) || holds
}

func (v sharer) uid(i int) types.UID { return types.UID(fmt.Sprintf("pod-%d-%d", i, v.pod.try)) }

func (v sharer) object(i int) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = fmt.Sprintf("vm%d", i), "ns", types.UID(fmt.Sprintf("vmi-%d", i))
	vmi.CreationTimestamp, vmi.Finalizers = past, []string{v1.VirtualMachineInstanceFinalizer}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "disk"}}
	vmi.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: sharedClaim}}}}
	vmi.Status.Phase = phases[v.phase]
	if v.chosen != 0 {
		vmi.Status.NodeName = nodeName(int8(i))
		vmi.Status.ActivePods = map[types.UID]string{types.UID(fmt.Sprintf("pod-%d-%d", i, v.chosen)): vmi.Status.NodeName}
	}
	return vmi
}

func (v sharer) podObject(i int) *corev1.Pod {
	of := v.object(i)
	out := &corev1.Pod{}
	out.Name, out.Namespace, out.UID = launcherpod.Name(of), "ns", v.uid(i)
	out.CreationTimestamp = metav1.NewTime(past.Add(time.Duration(v.pod.age) * time.Minute))
	out.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, v1.VirtualMachineInstanceGroupVersionKind)}
	out.Labels = map[string]string{
		v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: string(of.UID),
		launcherpod.NameLabel: launcherpod.NameLabelValue(of.Name), launcherpod.ClaimLabel(sharedClaim): "",
	}
	v.pod.lost.take(out)
	out.Status.Phase = corev1.PodRunning
	if v.pod.bound {
		out.Spec.NodeName = nodeName(int8(i))
	}
	if v.pod.deleting {
		out.DeletionTimestamp = &past
	}
	if v.pod.finished {
		out.Status.Phase = corev1.PodSucceeded
	}
	return out
}

// look is a round of virt-controller for one of them, up to its next action.
func (r sharers) look(s *sharing, i int) sharer {
	v, other := s.vmis[i], s.vmis[1-i]
	o := vmicontroller.Observed{VMI: v.object(i), VMAsked: true, PodAsked: true, NodeAsked: true, Node: answers.object(), WarningAsked: true, Now: clock}
	if v.pod.exists {
		o.Pod = v.podObject(i)
	}
	plan := vmicontroller.Decide(o)
	if plan.Needs == vmicontroller.NeedRivals {
		o.RivalsAsked = true
		if pod := other.podObject(1 - i); other.pod.exists && r.finds(pod, other.object(1-i)) {
			rival, is := vmicontroller.RivalOf(o.VMI, pod)
			if !is {
				rival, is = vmicontroller.HolderOf([]string{sharedClaim}, other.object(1-i), pod)
			}
			if is {
				o.Rivals = []vmicontroller.Rival{rival}
			}
		}
		plan = vmicontroller.Decide(o)
	}
	if plan.Needs != "" {
		panic("virt-controller asks for " + plan.Needs)
	}
	v.busy, v.create, v.remove, v.from, v.to, v.choose = true, plan.CreatePod, plan.DeletePod, v.phase, phaseOf(plan.VMI.Status.Phase), v.chosen
	if len(plan.VMI.Status.ActivePods) > 0 && v.chosen == 0 {
		v.choose = v.pod.try
	}
	return v
}

// act executes the decision.
func (s *sharing) act(i int) {
	v := &s.vmis[i]
	if v.create && !v.pod.exists && v.tries < mostTries {
		v.tries++
		s.made++
		v.pod = sharerPod{exists: true, try: v.tries, age: s.made}
	}
	if v.from == v.phase {
		v.phase, v.chosen = v.to, v.choose
	}
	if v.remove && v.pod.exists {
		v.remove = false
		s.deletePod(i)
	}
	v.forget()
}

func (v *sharer) forget() {
	v.busy, v.create, v.remove, v.from, v.to, v.choose = false, false, false, 0, 0, 0
}

func (s *sharing) deletePod(i int) {
	switch p := &s.vmis[i].pod; {
	case !p.bound || p.finished:
		*p = sharerPod{}
	default:
		p.deleting = true
	}
}

// steps emits all possible steps.
func (r sharers) steps(s *sharing, emit func(string, sharing)) {
	for i := range s.vmis {
		add := func(name string, change func(*sharing, *sharer)) {
			to := *s
			change(&to, &to.vmis[i])
			if to != *s {
				emit(fmt.Sprintf("%s (VMI %d)", name, i), to)
			}
		}
		v := s.vmis[i]
		if v.busy {
			add("virt-controller acts", func(to *sharing, _ *sharer) { to.act(i) })
			add("virt-controller is cut off", func(_ *sharing, is *sharer) { is.forget() })
		} else {
			add("virt-controller looks", func(to *sharing, is *sharer) { *is = r.look(s, i) })
		}
		v.node(add)
		for bit, label := range editable {
			if s.edits > 0 && v.pod.exists && !v.pod.lost.has(bit) && !r.frozen(label) {
				add("an editor takes the label "+label+" off", func(to *sharing, is *sharer) { is.pod.lost |= 1 << bit; to.edits-- })
			}
		}
		if s.deletes > 0 && v.pod.exists && !v.pod.deleting {
			add("an editor deletes the pod", func(to *sharing, _ *sharer) { to.deletePod(i); to.deletes-- })
		}
	}
}

func (v sharer) node(add func(string, func(*sharing, *sharer))) {
	p := v.pod
	becomes := func(name string, to process) { add(name, func(_ *sharing, is *sharer) { is.pod.proc = to }) }
	switch {
	case !p.exists:
	case !p.bound:
		if !p.deleting {
			add("the scheduler binds", func(_ *sharing, is *sharer) { is.pod.bound, is.pod.proc = true, assigned })
		}
	case p.proc == assigned:
		becomes("the kubelet starts the launcher", waiting)
	case p.proc == waiting && v.phase == phaseOf(v1.Scheduled) && v.chosen == p.try:
		becomes("virt-handler starts the guest", guest)
	case p.proc == guest && v.phase == phaseOf(v1.Scheduled):
		add("virt-handler reports the guest", func(_ *sharing, is *sharer) { is.phase = phaseRunning })
	case p.proc == ended && !p.finished:
		add("the kubelet reports the end", func(_ *sharing, is *sharer) { is.pod.finished = true })
	}
	v.end(add)
}

func (v sharer) end(add func(string, func(*sharing, *sharer))) {
	p := v.pod
	becomes := func(name string) { add(name, func(_ *sharing, is *sharer) { is.pod.proc = ended }) }
	if p.proc == guest {
		becomes("the guest ends by itself")
	}
	if p.deleting && p.proc.alive() {
		becomes("the kubelet ends the pod")
	}
	if p.deleting && p.finished {
		add("the kubelet lets the pod go", func(_ *sharing, is *sharer) { is.pod = sharerPod{} })
	}
}

// share explores two VMIs that want one claim. ran says which of them had a guest at some time.
func share(r sharers, edits, deletes int8) (g *exploration.Graph[sharing, string], ran [2]bool, err error) {
	g, err = exploration.Explore(&exploration.Model[sharing, string]{
		Initial: sharing{edits: edits, deletes: deletes},
		Next:    func(s *sharing, emit func(string, sharing)) { r.steps(s, emit) },
		Check: func(s *sharing) error {
			if s.guests() > 1 {
				return errTwoWriters
			}
			for i := range s.vmis {
				ran[i] = ran[i] || s.vmis[i].pod.proc == guest
			}
			return nil
		},
		Progress: func(string) (uint8, bool) { return 0, true },
		Good:     func(*sharing) bool { return true },
		Name:     func(name string, _ *sharing) string { return name },
		Text:     (*sharing).String,
		Most:     mostStates,
	})
	return g, ran, err
}

func TestAClaimHasOneGuestWhateverAnEditorDoes(t *testing.T) {
	asItWas := func(label string) bool { return label == v1.AppLabel || label == v1.CreatedByLabel }
	for name, c := range map[string]struct {
		rules sharers
		want  error
	}{
		"the policy keeps all labels that rules go by": {sharers{labeledOnly, podlabels.IsLabel}, nil},
		"somebody with more rights than the policy gives takes the claim's label off, and the VMIs lead to their pods": {
			sharers{byVMIsToo, asItWas}, nil},
		"as it was, the policy kept two labels and pods were found by others": {sharers{labeledOnly, asItWas}, errTwoWriters},
	} {
		t.Run(name, func(t *testing.T) {
			g, ran, err := share(c.rules, 2, 1)
			t.Logf("%d states, %d transitions", g.States(), g.Transitions)
			var broken *exploration.Violation
			if errors.As(err, &broken) {
				t.Log(broken)
			}
			if !errors.Is(err, c.want) && (broken == nil || !errors.Is(broken.Broken, c.want)) || c.want == nil && err != nil {
				t.Errorf("it answers %v, want %v", err, c.want)
			}
			if c.want == nil && ran != [2]bool{true, true} {
				t.Errorf("guests run in the model: %v", ran)
			}
		})
	}
}
