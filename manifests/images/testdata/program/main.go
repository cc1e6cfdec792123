// Command program is what an image is made of in a test.
package main

func main() {}
