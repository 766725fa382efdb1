package placement

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// world is the true state of one VMI with two DataVolumes and a plain claim, on two nodes.
type world struct {
	wanted bool
	claims []Claim
	pod    *corev1.Pod
	now    time.Time
	// alive are the working nodes.
	alive map[string]bool
	// launched means that the launcher pod was made.
	launched bool
}

func (w *world) copy() *world {
	c := *w
	c.claims = make([]Claim, len(w.claims))
	for i := range w.claims {
		from := &w.claims[i]
		c.claims[i] = Claim{Name: from.Name, Source: from.Source, Claim: from.Claim.DeepCopy(), DataVolume: from.DataVolume.DeepCopy()}
	}
	c.pod = w.pod.DeepCopy()
	return &c
}

// All events happen at any time: the controller sees any earlier world and dies between two actions, nodes die, pods
// are evicted, DataVolumes fail and are deleted, and the VMI is deleted.
type model struct {
	history []*world
	cache   int
	pods    int
}

func newModel() *model {
	w := &world{wanted: true, now: now, alive: map[string]bool{"node-1": true, "node-2": true}}
	w.claims = []Claim{newDisk("a"), newDisk("b"), plain("c", unbound)}
	return &model{history: []*world{w}}
}

func newDisk(name string) Claim {
	return Claim{Name: name, Source: name, DataVolume: dataVolume(name, cdiv1.PhaseUnset)}
}

func (m *model) now() *world { return m.history[len(m.history)-1] }

// change makes the next world.
func (m *model) change(edit func(*world)) {
	next := m.now().copy()
	edit(next)
	m.history = append(m.history, next)
}

func (w *world) observe() Observed {
	return Observed{Wanted: w.wanted && !w.launched, Claims: w.claims, Pod: w.pod, Now: w.now}
}

// choices is the loop of the scheduler's choices, with a cache's view.
func (m *model) choices(seen *world) {
	for i := range seen.claims {
		c := Choice{Claim: seen.claims[i].Claim, Used: seen.wanted || seen.claims[i].Source != "", Now: m.now().now}
		plan := DecideChoice(c)
		if plan.Needs != NeedNode {
			continue
		}
		chosen := SelectedNode(c.Claim)
		if c.NodeAsked = true; m.now().alive[chosen] {
			c.Node = &corev1.Node{}
		}
		if plan = DecideChoice(c); plan.Needs == NeedClaim {
			c.ClaimAsked, c.Claim = true, m.now().claims[i].Claim
			if SelectedNode(c.Claim) != chosen {
				c.Claim = nil
			}
			plan = DecideChoice(c)
		}
		if plan.Release {
			m.change(func(w *world) { delete(w.claims[i].Claim.Annotations, SelectedNodeAnnotation) })
		}
	}
}

// controller is one round with a cache's view, cut off after budget actions.
func (m *model) controller(seen *world, budget int) State {
	o := seen.copy().observe()
	o.Now = m.now().now
	plan := Decide(o)
	if plan.Confirm {
		truth := m.now().copy().observe()
		o.Claims, o.Confirmed, o.Topologies = truth.Claims, true, m.homes()
		plan = Decide(o)
	}
	if plan.Create && spend(&budget) && m.now().pod == nil {
		m.pods++
		m.change(func(w *world) {
			w.pod = pod(corev1.PodPending, 0)
			w.pod.UID, w.pod.CreationTimestamp = "uid-"+w.pod.UID, metav1.NewTime(w.now)
			w.pod.Name = fmt.Sprint(m.pods)
		})
	}
	if plan.Delete && spend(&budget) && m.now().pod != nil && m.now().pod.Name == o.Pod.Name {
		m.change(func(w *world) { w.pod = nil })
	}
	if plan.State == Clear && !plan.Confirm && !plan.Delete && spend(&budget) && m.now().wanted {
		m.change(func(w *world) { w.launched = true })
	}
	return plan.State
}

func spend(budget *int) bool {
	*budget--
	return *budget >= 0
}

// The volume's name has the node here.
func (m *model) homes() []Topology {
	var out []Topology
	for _, c := range m.now().claims {
		if c.bound() {
			out = append(out, Topology{Claim: c.Name, Nodes: []string{c.Claim.Spec.VolumeName}})
		}
	}
	return out
}

// dataVolumes moves each DataVolume one step on.
func (m *model) dataVolumes() {
	m.change(func(w *world) {
		for i := range w.claims {
			c := &w.claims[i]
			switch {
			case c.DataVolume == nil:
			case c.Claim == nil:
				c.Claim = claimOf(c.Name, unbound)
				c.DataVolume.Status.Phase = cdiv1.Pending
			case c.DataVolume.Status.Phase == cdiv1.Pending && !c.bound():
				c.DataVolume.Status.Phase = cdiv1.WaitForFirstConsumer
			case c.bound() && waitsForConsumer(c.DataVolume.Status.Phase):
				c.DataVolume.Status.Phase = cdiv1.ImportScheduled
			case c.DataVolume.Status.Phase == cdiv1.ImportScheduled:
				c.DataVolume.Status.Phase = cdiv1.Succeeded
			}
		}
	})
}

// The claims are bound one at a time on the chosen node, which must agree with those that are bound already; then the
// pod gets its node.
func (m *model) schedule() {
	w := m.now()
	if w.pod == nil || podstatus.Terminal(w.pod) || w.pod.Spec.NodeName != "" {
		return
	}
	node := m.fits()
	if node == "" {
		return
	}
	m.change(func(w *world) {
		for i := range w.claims {
			c := &w.claims[i].Claim
			switch {
			case *c == nil || (*c).Status.Phase == bound:
			case (*c).Annotations[SelectedNodeAnnotation] == "":
				(*c).Annotations = map[string]string{SelectedNodeAnnotation: node}
				return
			case w.alive[node]:
				(*c).Status.Phase, (*c).Spec.VolumeName = bound, node
				return
			default:
				return // the provisioner of that node is dead
			}
		}
		w.pod.Spec.NodeName, w.pod.Status.Phase = node, corev1.PodRunning
	})
}

// fits returns the node on which all of the pod's claims agree, or "".
func (m *model) fits() string {
	w := m.now()
	node := ""
	for _, c := range w.claims {
		topology := SelectedNode(c.Claim)
		if c.bound() {
			topology = c.Claim.Spec.VolumeName
		}
		if topology == "" {
			continue
		}
		if node != "" && node != topology {
			return ""
		}
		node = topology
	}
	if node != "" {
		return node
	}
	for _, name := range []string{"node-1", "node-2"} {
		if w.alive[name] {
			return name
		}
	}
	return ""
}

// check checks the invariants after every step.
func (m *model) check(t *rapid.T) {
	w, before := m.now(), m.history[max(0, len(m.history)-2)]
	if w.launched && !before.launched && !allFilled(w.claims[:2]) {
		t.Fatal("the launcher pod was made before the disks were filled")
	}
}

// settle repairs all damage and lets every part work until nothing changes.
func (m *model) settle() State {
	var last State
	for range 60 {
		m.change(func(w *world) {
			w.now = w.now.Add(failedPodPause)
			for i := range w.claims {
				if c := &w.claims[i]; c.Source != "" && c.DataVolume == nil {
					*c = newDisk(c.Name) // made again, because its claim was deleted with it
				}
				if c := &w.claims[i]; c.DataVolume != nil && c.DataVolume.Status.Phase == cdiv1.Failed {
					*c = newDisk(c.Name)
				}
			}
		})
		last = m.controller(m.now(), 10)
		m.choices(m.now())
		m.dataVolumes()
		m.schedule()
	}
	return last
}

func TestWhateverHappensNoProvisioningPodIsLeftAndTheDisksMeet(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		m := newModel()
		for range rapid.IntRange(0, 6).Draw(t, "rounds in which all goes well") {
			m.controller(m.now(), 10)
			m.dataVolumes()
			m.schedule()
		}
		which := func(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "DataVolume") }
		t.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"the controller works": func(t *rapid.T) {
				m.controller(m.history[m.cache], rapid.IntRange(0, 2).Draw(t, "actions until it dies"))
			},
			"the scheduler's choices are looked at": func(*rapid.T) { m.choices(m.history[m.cache]) },
			"another leader works on what is true":  func(*rapid.T) { m.controller(m.now(), 10) },
			"the cache moves on":                    func(*rapid.T) { m.cache = min(m.cache+1, len(m.history)-1) },
			"the cache is up to date":               func(*rapid.T) { m.cache = len(m.history) - 1 },
			"DataVolumes move on":                   func(*rapid.T) { m.dataVolumes() },
			"the scheduler works":                   func(*rapid.T) { m.schedule() },
			"time passes":                           func(*rapid.T) { m.change(func(w *world) { w.now = w.now.Add(4 * time.Second) }) },
			"the pod is evicted": func(*rapid.T) {
				m.change(func(w *world) {
					if w.pod != nil {
						w.pod.Status.Phase = corev1.PodFailed
					}
				})
			},
			"a deletion of the pod is cut off": func(*rapid.T) {
				m.change(func(w *world) {
					if w.pod != nil {
						terminating(w.pod)
					}
				})
			},
			"somebody deletes the pod": func(*rapid.T) { m.change(func(w *world) { w.pod = nil }) },
			"a node dies": func(*rapid.T) {
				m.change(func(w *world) { w.alive = map[string]bool{"node-2": true} })
			},
			"the VMI is not wanted any more": func(*rapid.T) { m.change(func(w *world) { w.wanted = false }) },
			"a DataVolume fails": func(t *rapid.T) {
				i := which(t)
				m.change(func(w *world) {
					if dv := w.claims[i].DataVolume; dv != nil && dv.Status.Phase != cdiv1.Succeeded && !w.launched {
						dv.Status.Phase = cdiv1.Failed
					}
				})
			},
			"somebody deletes a DataVolume, and its claim with it": func(t *rapid.T) {
				i := which(t)
				m.change(func(w *world) {
					if !w.launched {
						w.claims[i].DataVolume, w.claims[i].Claim = nil, nil
					}
				})
			},
		})
		m.rests(t, m.settle())
	})
}

// rests fails unless all work is done, or can't be.
func (m *model) rests(t *rapid.T, last State) {
	w := m.now()
	if m.onDeadNode() && w.wanted && w.pod != nil && last == Provisioning {
		return // a claim that is bound there stops all the others until the node is back
	}
	if w.pod != nil {
		t.Fatalf("a provisioning pod is left in state %s: %+v", last, w.claims)
	}
	switch {
	case !w.wanted || w.launched:
	case last == Divided, m.onDeadNode():
		// These were bound earlier on different nodes, or on a dead one.
	default:
		t.Fatalf("it does not come to rest: %s, %+v", last, w.claims)
	}
	made := m.pods
	m.controller(m.now(), 10)
	if m.pods != made {
		t.Fatal("a pod is made when everything is done")
	}
}

// onDeadNode reports whether some claim is bound to a dead node.
func (m *model) onDeadNode() bool {
	for _, c := range m.now().claims {
		if c.bound() && !m.now().alive[c.Claim.Spec.VolumeName] {
			return true
		}
	}
	return false
}
