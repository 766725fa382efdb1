package pagedlist

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answered is a request for a page: how many pods were asked for from which one on.
type answered struct{ from, limit int }

// serverOf returns a client of an API server whose pods have these sizes in bytes, and the requests that it answered.
func serverOf(t *testing.T, sizes []int) (client.Reader, *[]answered) {
	t.Helper()
	var asked []answered
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		if err != nil {
			t.Errorf("the request has no limit: %s", r.URL)
		}
		asked = append(asked, answered{from, limit})
		list := corev1.PodList{}
		list.Kind, list.APIVersion = "PodList", "v1"
		to := min(from+limit, len(sizes))
		for i := from; i < to; i++ {
			pod := corev1.Pod{}
			pod.Name, pod.Annotations = fmt.Sprintf("pod-%03d", i), map[string]string{"a": strings.Repeat("x", sizes[i])}
			list.Items = append(list.Items, pod)
		}
		if to < len(sizes) {
			list.Continue = strconv.Itoa(to)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // a client that has read enough goes
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	Bound(config)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c, &asked
}

func TestAPageHasFewBytes(t *testing.T) {
	const mib = 1 << 20
	small := func(count int) []int { return slices.Repeat([]int{100}, count) }
	for name, c := range map[string]struct {
		sizes []int
		asked []answered
	}{
		"small pods": {small(210), []answered{{0, 100}, {100, 100}, {200, 100}}},
		"large pods": {slices.Repeat([]int{mib}, 4), []answered{
			{0, 100}, {0, 25}, {0, 6}, {0, 1}, {1, 4}, {1, 1}, {2, 4}, {2, 1}, {3, 4},
		}},
		"pods of the largest size": {[]int{3 * mib / 2, 3 * mib / 2}, []answered{{0, 100}, {0, 25}, {0, 6}, {0, 1}, {1, 4}}},
		"one that does not fit":    {[]int{3 * mib}, []answered{{0, 100}, {0, 25}, {0, 6}, {0, 1}}},
		"large pods among small ones": {slices.Concat(small(30), []int{mib, mib}, small(60)), []answered{
			{0, 100}, {0, 25}, {25, 100}, {25, 25}, {25, 6}, {31, 24}, {55, 96},
		}},
	} {
		reader, asked := serverOf(t, c.sizes)
		found, err := Collect(t.Context(), reader, &corev1.PodList{}, func(pod *corev1.Pod) (string, bool) { return pod.Name, true })
		var want []string
		for i := range c.sizes {
			want = append(want, fmt.Sprintf("pod-%03d", i))
		}
		if err != nil || !slices.Equal(found, want) {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
		if !slices.Equal(*asked, c.asked) {
			t.Errorf("%s: asked for\n%v, want\n%v", name, *asked, c.asked)
		}
	}
}
