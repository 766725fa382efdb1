// Package rivals finds the guests and the maintenance pods beside which a guest, or somebody with a machine's disks, must
// not run.
//
// It owns the questions: to the API server by labels, which a policy keeps as virt-controller has made them, and besides
// by what nobody can change. Which pods count is package vmilifecycle's rule. It changes nothing.
package rivals

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/maintainers"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vmilifecycle"
)

// index finds the launcher pods of VMIs of a name by the pods' names.
const index = "drydock.launcher-pods"

// Register adds the index to a cache. It can be added once.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.Pod{}, index, stems); err != nil {
		return fmt.Errorf("indexing launcher pods by VMI: %w", err)
	}
	return nil
}

func stems(o client.Object) []string {
	if stem := launcherpod.NameStemOf(o); stem != "" && launcherpod.IsLauncher(o) {
		return []string{stem}
	}
	return nil
}

// Named returns the launcher pods of VMIs of a name that a cache has. They are the cache's own and must not be changed.
func Named(ctx context.Context, cache client.Reader, name types.NamespacedName) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := cache.List(ctx, &list, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index: launcherpod.NameStem(name.Name)})
	if err != nil {
		return nil, fmt.Errorf("listing the launcher pods of VMIs of the name %s: %w", name, err)
	}
	var out []*corev1.Pod
	for i := range list.Items {
		if launcherpod.IsNamedFor(&list.Items[i], name.Name) {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

// Question is for whom rivals are looked for.
type Question struct {
	// Namespace and Name are those of the machine.
	Namespace, Name string
	// SameName has earlier guests of the machine's name count.
	SameName bool
	// Claims are those that nobody else may write to.
	Claims []string
	// Judge reports whether a launcher pod is a rival.
	Judge func(*corev1.Pod) (vmilifecycle.Rival, bool)
	// Maintenance means that it is the machine's maintenance that asks: the machine's maintenance pods are none.
	Maintenance bool
}

// Ask asks for the rivals. The API server's answers are complete as long as pods have the labels that they were made with.
// Where some have lost theirs, pods of the machine's name and VMIs that write to the claims lead to them: both are a cache's,
// and each pod is then asked for.
func Ask(ctx context.Context, reader, cache client.Reader, q Question) ([]vmilifecycle.Rival, error) {
	s := &search{reader: reader, cache: cache, q: q, seen: map[string]bool{}}
	for _, step := range []func(context.Context) error{s.byLabels, s.byName, s.byClaims} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("looking for what %s/%s must not run beside: %w", q.Namespace, q.Name, err)
		}
	}
	return s.found, nil
}

type search struct {
	reader, cache client.Reader
	q             Question
	// seen are the names of the pods that were judged.
	seen  map[string]bool
	found []vmilifecycle.Rival
}

func (s *search) add(rival vmilifecycle.Rival, is bool) {
	if is {
		s.found = append(s.found, rival)
	}
}

func (s *search) byLabels(ctx context.Context) error {
	var selectors []client.MatchingLabels
	if s.q.SameName {
		selectors = append(selectors, client.MatchingLabels{
			v1.AppLabel: layout.LauncherApp, launcherpod.NameLabel: launcherpod.NameLabelValue(s.q.Name)})
	}
	for _, claim := range s.q.Claims {
		selectors = append(selectors, client.MatchingLabels{launcherpod.ClaimLabel(claim): ""})
	}
	for _, selector := range selectors {
		var list corev1.PodList
		if err := s.reader.List(ctx, &list, client.InNamespace(s.q.Namespace), selector); err != nil {
			return fmt.Errorf("asking for pods: %w", err)
		}
		for i := range list.Items {
			if err := s.look(ctx, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// look judges a pod that the API server has shown. One that is of neither kind may still be found as another VMI's.
func (s *search) look(ctx context.Context, pod *corev1.Pod) error {
	if s.seen[pod.Name] {
		return nil
	}
	switch machine := lock.For(pod); {
	case launcherpod.IsLauncher(pod):
		s.seen[pod.Name] = true
		s.add(s.q.Judge(pod))
	case machine != "" && (!s.q.Maintenance || machine != layout.LabelValue(s.q.Name)):
		s.seen[pod.Name] = true
		rival, is, err := maintainers.On(ctx, s.reader, s.q.Claims, pod)
		if err != nil {
			return err
		}
		s.add(rival, is)
	}
	return nil
}

// byName looks at the pods of the machine's name that do not say so any more.
func (s *search) byName(ctx context.Context) error {
	if !s.q.SameName {
		return nil
	}
	pods, err := Named(ctx, s.cache, types.NamespacedName{Namespace: s.q.Namespace, Name: s.q.Name})
	if err != nil {
		return err
	}
	for _, known := range pods {
		if s.seen[known.Name] {
			continue
		}
		pod, err := s.pod(ctx, known.Name)
		if err != nil {
			return err
		}
		if pod != nil {
			if err := s.look(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// manyPods is from how many pods on it costs less to ask which there are than to ask for each.
const manyPods = 8

// byClaims looks at the pods of other VMIs that do not say any more that their guest writes to one of the claims. Of
// VMIs that wait for each other there may be any number, and none of them has a pod.
func (s *search) byClaims(ctx context.Context) error {
	owners := map[string]*v1.VirtualMachineInstance{}
	for _, claim := range s.q.Claims {
		key := &corev1.PersistentVolumeClaim{}
		key.Namespace, key.Name = s.q.Namespace, claim
		users, err := claimusers.List(ctx, s.cache, key)
		if err != nil {
			return err
		}
		for i := range users {
			for _, name := range s.unseen(&users[i]) {
				owners[name] = &users[i]
			}
		}
	}
	there, err := s.existing(ctx, slices.Sorted(maps.Keys(owners)))
	if err != nil {
		return err
	}
	for _, name := range there {
		s.seen[name] = true
		pod, err := s.pod(ctx, name)
		if err != nil {
			return err
		}
		if pod != nil {
			s.add(vmilifecycle.HolderOf(s.q.Claims, owners[name], pod))
		}
	}
	return nil
}

// unseen are the names of the pods that another VMI may have, as far as the API server has not shown them before.
func (s *search) unseen(other *v1.VirtualMachineInstance) []string {
	if other.Name == s.q.Name || vmilifecycle.WrittenBy(s.q.Claims, other) == "" {
		return nil
	}
	return slices.DeleteFunc([]string{launcherpod.CurrentName(other), launcherpod.OtherName(other)}, func(name string) bool {
		return name == "" || s.seen[name]
	})
}

// existing are those of the pods that may exist, by the API server's word.
func (s *search) existing(ctx context.Context, names []string) ([]string, error) {
	if len(names) <= manyPods {
		return names, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := s.reader.List(ctx, list, client.InNamespace(s.q.Namespace)); err != nil {
		return nil, fmt.Errorf("asking which pods there are: %w", err)
	}
	there := map[string]bool{}
	for i := range list.Items {
		there[list.Items[i].Name] = true
	}
	return slices.DeleteFunc(names, func(name string) bool { return !there[name] }), nil
}

// pod asks the API server for a pod, nil for none.
func (s *search) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return versioned.Read[corev1.Pod](ctx, s.reader, "pod", types.NamespacedName{Namespace: s.q.Namespace, Name: name})
}
