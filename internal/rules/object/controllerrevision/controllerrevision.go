// Package controllerrevision encodes the data of ControllerRevisions as JSON with the fields of every object sorted by
// name. It must not decide which data is kept, or for how long.
//
// The data is immutable. When the garbage collector removes an owner, the API server encodes the data again, in sorted
// order, and refuses a changed order: an owner that is deleted with --cascade=orphan would stay forever.
package controllerrevision

import (
	"bytes"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Data encodes a type of the API, which cannot fail.
func Data(v any) runtime.RawExtension {
	encoded, err := json.Marshal(v)
	if err == nil {
		encoded, err = sorted(encoded)
	}
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return runtime.RawExtension{Raw: encoded}
}

// Sorted reports whether the garbage collector can remove an owner.
func Sorted(r *appsv1.ControllerRevision) bool {
	data, err := sorted(r.Data.Raw)
	return err == nil && bytes.Equal(data, r.Data.Raw)
}

// The API server distinguishes integers from other numbers.
func sorted(data []byte) ([]byte, error) {
	var v any
	if err := utiljson.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	return json.Marshal(v)
}
