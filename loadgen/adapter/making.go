package adapter

// MakingTable is the name of an empty table that is there while loadgen makes a tool's tables; its comment says which. They are not
// marked as loadgen's before they are whole, so that it alone tells the rest of an interrupted call from what is somebody else's.
func MakingTable(tool string) string { return "plumbline_loadgen_making_" + tool }
