package versioned

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var pods = schema.GroupResource{Resource: "pods"}

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "p"}}
}

// server has the pod, and answers every request with err, unless it is nil.
func server(t *testing.T, err error) (client.Client, *corev1.Pod) {
	t.Helper()
	c := fake.NewClientBuilder().WithObjects(pod()).WithStatusSubresource(&corev1.Pod{}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()
	has := pod()
	if err == nil {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(has), has); err != nil {
			t.Fatal(err)
		}
	}
	return c, has
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		key    client.ObjectKey
		answer error
		found  bool
		err    string
	}{
		"an object that is there": {key: client.ObjectKey{Namespace: "lab", Name: "p"}, found: true},
		"none":                    {key: client.ObjectKey{Namespace: "lab", Name: "other"}},
		"the API server is away":  {client.ObjectKey{Namespace: "lab", Name: "p"}, errors.New("timeout"), false, "reading the pod lab/p: timeout"},
		"a name in no namespace":  {client.ObjectKey{Name: "p"}, errors.New("timeout"), false, "reading the pod p: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := server(t, c.answer)
			got, err := Read[corev1.Pod](t.Context(), s, "the pod", c.key)
			if (got != nil) != c.found || message(err) != c.err {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// Each answer of the API server has its outcome of a write.
func TestWrites(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		wrote  bool
		err    string
	}{
		"it is written":           {wrote: true},
		"somebody was faster":     {answer: apierrors.NewConflict(pods, "p", nil)},
		"the object is gone":      {answer: apierrors.NewNotFound(pods, "p")},
		"the API server is away":  {answer: errors.New("timeout"), err: "changing the pod lab/p: timeout"},
		"the write is not served": {answer: apierrors.NewForbidden(pods, "p", errors.New("quota")), err: `changing the pod lab/p: pods "p" is forbidden: quota`},
	} {
		t.Run(name, func(t *testing.T) {
			s, from := server(t, c.answer)
			to := from.DeepCopy()
			to.Labels = map[string]string{"a": "b"}
			if err := Patch(t.Context(), s, "changing the pod", from, to); message(err) != c.err {
				t.Errorf("Patch says %v", err)
			}
			s, from = server(t, c.answer)
			to = from.DeepCopy()
			to.Labels = map[string]string{"a": "b"}
			if written, err := Replace(t.Context(), s, "changing the pod", to); (written != nil) != c.wrote || message(err) != c.err || written == to {
				t.Errorf("Replace says %v, %v", written, err)
			}
			s, from = server(t, c.answer)
			to = from.DeepCopy()
			to.Status.Message = "a"
			if err := PatchStatus(t.Context(), s, "changing the pod", from, to); message(err) != c.err {
				t.Errorf("PatchStatus says %v", err)
			}
			s, from = server(t, c.answer)
			wrote, err := FollowStatus(t.Context(), s, "changing the pod", from, to)
			if wrote != c.wrote || message(err) != c.err || wrote != (to.ResourceVersion != from.ResourceVersion) {
				t.Errorf("FollowStatus says %t, %v", wrote, err)
			}
		})
	}
}

func TestWhatHasChangedSinceIsNotWritten(t *testing.T) {
	s, from := server(t, nil)
	first := from.DeepCopy()
	first.Status.Message = "first"
	if wrote, err := FollowStatus(t.Context(), s, "changing the pod", from, first); !wrote || err != nil {
		t.Fatalf("the first write: %t, %v", wrote, err)
	}
	second := from.DeepCopy()
	second.Status.Message = "second"
	if wrote, err := FollowStatus(t.Context(), s, "changing the pod", from, second); wrote || err != nil {
		t.Errorf("a write on top of an old version: %t, %v", wrote, err)
	}
	second = first.DeepCopy()
	second.Status.Message = "second"
	if wrote, err := FollowStatus(t.Context(), s, "changing the pod", first, second); !wrote || err != nil {
		t.Errorf("a write on top of what was written: %t, %v", wrote, err)
	}
}

func TestNothingIsWrittenWithoutADifference(t *testing.T) {
	s, from := server(t, errors.New("must not be asked"))
	if wrote, err := FollowStatus(t.Context(), s, "changing the pod", from, from.DeepCopy()); !wrote || err != nil {
		t.Errorf("got %t, %v", wrote, err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestFind(t *testing.T) {
	s, _ := server(t, nil)
	into := &corev1.Pod{}
	if found, err := Find(t.Context(), s, "the pod", client.ObjectKey{Namespace: "lab", Name: "p"}, into); !found || err != nil || into.Name != "p" {
		t.Errorf("an object that is there: %t, %v, %s", found, err, into.Name)
	}
	if found, err := Find(t.Context(), s, "the pod", client.ObjectKey{Namespace: "lab", Name: "other"}, into); found || err != nil {
		t.Errorf("none: %t, %v", found, err)
	}
}

func TestTheCacheComesFirst(t *testing.T) {
	holds, _ := server(t, nil)
	empty := fake.NewClientBuilder().Build()
	away, _ := server(t, errors.New("timeout"))
	for name, c := range map[string]struct {
		cache, server client.Reader
		found         bool
		err           string
	}{
		"the cache has it, and nobody else is asked": {cache: holds, server: away, found: true},
		"the cache is late":                          {cache: empty, server: holds, found: true},
		"it does not exist":                          {cache: empty, server: empty},
		"the API server is away":                     {cache: empty, server: away, err: "reading the pod lab/p: timeout"},
		"the cache is not ready":                     {cache: away, server: holds, err: "reading the pod lab/p: timeout"},
	} {
		got, err := Read[corev1.Pod](t.Context(), CacheFirst(c.cache, c.server), "the pod", client.ObjectKey{Namespace: "lab", Name: "p"})
		if (got != nil) != c.found || message(err) != c.err {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestCurrent(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		answer  error
		current bool
		err     string
	}{
		"the newest version":       {change: func(*corev1.Pod) {}, current: true},
		"an older one":             {change: func(p *corev1.Pod) { p.ResourceVersion = "1" }},
		"another object's":         {change: func(p *corev1.Pod) { p.UID = "other" }},
		"one that is gone":         {change: func(p *corev1.Pod) { p.Name = "gone" }},
		"the API server is away":   {change: func(*corev1.Pod) {}, answer: errors.New("timeout"), err: "making sure of the pod lab/p: timeout"},
		"the API server had it go": {change: func(*corev1.Pod) {}, answer: apierrors.NewNotFound(pods, "p")},
	} {
		s, seen := server(t, c.answer)
		c.change(seen)
		if current, err := Current(t.Context(), s, "the pod", seen); current != c.current || message(err) != c.err {
			t.Errorf("%s: %t, %v", name, current, err)
		}
	}
}

func TestTheWrittenVersionIsReturned(t *testing.T) {
	s, from := server(t, nil)
	to := from.DeepCopy()
	to.Labels = map[string]string{"a": "b"}
	written, err := Write(t.Context(), s, "changing the pod", from, to)
	if err != nil || written == nil || written.ResourceVersion == from.ResourceVersion || written.Labels["a"] != "b" {
		t.Fatalf("Write returned %v, %v", written, err)
	}
	if to.ResourceVersion != from.ResourceVersion {
		t.Error("the caller's object was changed")
	}
	// The first version is not the newest any more.
	if again, err := Write(t.Context(), s, "changing the pod", from, to); again != nil || err != nil {
		t.Errorf("a second write returned %v, %v", again, err)
	}
	written.Status.Message = "a"
	if told, err := WriteStatus(t.Context(), s, "changing the pod", to, written); told != nil || err != nil {
		t.Errorf("a write of the status over another version returned %v, %v", told, err)
	}
}
