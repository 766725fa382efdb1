package controllerrevision

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDataHasItsFieldsInTheOrderOfTheirNames(t *testing.T) {
	type inner struct {
		Z int     `json:"z"`
		A string  `json:"a"`
		F float64 `json:"f"`
	}
	data := Data(struct {
		Second []inner `json:"second"`
		First  *inner  `json:"first"`
		Big    int64   `json:"big"`
	}{Second: []inner{{Z: 1, A: "<&>", F: 0.5}}, Big: 1<<53 + 1})
	const want = `{"big":9007199254740993,"first":null,"second":[{"a":"\u003c\u0026\u003e","f":0.5,"z":1}]}`
	if string(data.Raw) != want {
		t.Errorf("the data are %s, want %s", data.Raw, want)
	}
	if !Sorted(&appsv1.ControllerRevision{Data: data}) {
		t.Error("the data do not count as sorted")
	}
}

func TestWhatIsSorted(t *testing.T) {
	for data, want := range map[string]bool{
		`{}`:                            true,
		`{"a":1,"b":{"c":2,"d":3}}`:     true,
		`{"b":1,"a":2}`:                 false,
		`{"a":1,"b":{"d":3,"c":2}}`:     false,
		`{"a":[{"a":1},{"d":3,"c":2}]}`: false,
		`{"a": 1}`:                      false,
		`no JSON`:                       false,
		``:                              false,
	} {
		if got := Sorted(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(data)}}); got != want {
			t.Errorf("%s counts as sorted: %t", data, got)
		}
	}
}
