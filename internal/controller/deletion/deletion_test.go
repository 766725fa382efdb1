package deletion

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/mutationcache"
)

// apiServer gives each deletion the same answer, and records the requested UIDs and grace periods.
type apiServer struct {
	client.Writer
	answer error
	asked  []string
	grace  []*int64
}

func (a *apiServer) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	o := (&client.DeleteOptions{}).ApplyOptions(options)
	uid := "any"
	if o.Preconditions != nil && o.Preconditions.UID != nil {
		uid = string(*o.Preconditions.UID)
	}
	a.asked, a.grace = append(a.asked, object.GetNamespace()+"/"+object.GetName()+" "+uid), append(a.grace, o.GracePeriodSeconds)
	return a.answer
}

var (
	pods     = schema.GroupResource{Resource: "pods"}
	notFound = apierrors.NewNotFound(pods, "pod")
	conflict = apierrors.NewConflict(pods, "pod", errors.New("the UID is another"))
	errAway  = errors.New("the API server is away")
)

func newPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "u"}}
}

func TestThisVeryObjectIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		gone   bool
		err    string
	}{
		"it is there":            {nil, false, ""},
		"it is gone":             {notFound, true, ""},
		"another one is there":   {conflict, true, ""},
		"the API server is away": {errAway, false, "deleting the target pod ns/pod: the API server is away"},
	} {
		server := &apiServer{answer: c.answer}
		gone, err := Exact(t.Context(), server, newPod(), "the target pod", client.GracePeriodSeconds(7))
		if gone != c.gone || (err == nil) != (c.err == "") || err != nil && (err.Error() != c.err || !errors.Is(err, c.answer)) {
			t.Errorf("%s: gone %v, %v; want %v, %q", name, gone, err, c.gone, c.err)
		}
		if len(server.asked) != 1 || server.asked[0] != "ns/pod u" || server.grace[0] == nil || *server.grace[0] != 7 {
			t.Errorf("%s: asked for %v, grace periods %v", name, server.asked, server.grace)
		}
	}
}

func TestADependentIsDeletedOnce(t *testing.T) {
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner"}}
	for name, c := range map[string]struct {
		answer error
		fails  bool
		asked  int
	}{
		"it is there":            {nil, false, 1},
		"it is gone":             {notFound, false, 1},
		"another one is there":   {conflict, false, 1},
		"the API server is away": {errAway, true, 2},
	} {
		server, asked := &apiServer{answer: c.answer}, &mutationcache.Deletions{}
		for range 2 {
			if err := Once(t.Context(), server, asked, owner, newPod(), "the pod"); (err != nil) != c.fails {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(server.asked) != c.asked {
			t.Errorf("%s: the API server was asked %d times, want %d", name, len(server.asked), c.asked)
		}
	}
	server, asked := &apiServer{}, &mutationcache.Deletions{}
	next := newPod()
	next.UID = "v"
	for _, pod := range []*corev1.Pod{newPod(), next} {
		if err := Once(t.Context(), server, asked, owner, pod, "the pod"); err != nil {
			t.Fatal(err)
		}
	}
	if len(server.asked) != 2 || server.asked[1] != "ns/pod v" {
		t.Errorf("of another object of the name it is asked %v", server.asked)
	}
}
